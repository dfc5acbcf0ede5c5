"""The command as users run it: in this process by click's runner, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parent.parent.parent / "data"


@dataclass(frozen=True)
class Ran:
    """What a run gave."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """``run("replay", path, input=...)``, in this process."""

    from click.testing import CliRunner

    from ssefold.adapters.cli.app import app

    def run_app(*arguments: str | Path, input: bytes | str | None = None) -> Ran:
        result = CliRunner().invoke(app, [str(one) for one in arguments], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run_app


def run_process(*arguments: str | Path, input: bytes = b"", prelude: str = "", **environment: str) -> Ran:
    """The command in an interpreter of its own, as a pipe would run it."""
    code = f"{prelude}\nimport sys\nfrom ssefold.adapters.cli import main\nsys.argv[0] = 'ssefold'\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=input,
        capture_output=True,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def data() -> Path:
    """Where the recorded streams are."""
    return DATA


def event(payload: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def chunk(*ids: int, finish: Any = None, text: str = "x", total: int | None = None, **meta: Any) -> dict[str, Any]:
    """A chunk of an incremental stream without logprobs."""
    count = len(ids) if total is None else total
    return {
        "text": text,
        "output_ids": list(ids),
        "meta_info": {"id": "r", "finish_reason": finish, "prompt_tokens": 3, "completion_tokens": count, **meta},
    }


STOP = {"type": "stop", "matched": 2}
DONE = b"data: [DONE]\n\n"
