"""The server under test: started from its folder, or one that runs already.

Knows processes and the server's small endpoints, and nothing of the library.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from tests.live.truth import Truth

Mode = Literal["cumulative", "incremental"]
SCRIPTS = Path(__file__).parent / "sglang_cpu"
START_PATIENCE = 500.0
MODEL = "models/tiny-qwen3moe"

LAYERS, TOP_K, EXPERTS = 2, 2, 8
"""Of that model (``make_model.py``)."""
CONTEXT = 8192
RUNNING = 8
"""Requests that run at once; the others queue."""


class LiveServer:
    """One running server."""

    def __init__(self, url: str, truth: Path, processor: str | None) -> None:
        self.url = url
        self.truth = Truth(truth)
        self.processor = processor
        """A serialised logit processor that makes the server say a text of the test's choice."""

    @property
    def generate(self) -> str:
        return self.url + "/generate"

    def info(self) -> dict[str, Any]:
        return self._call("/server_info")  # type: ignore[no-any-return]

    def mode(self) -> Mode:
        return "incremental" if self.info()["incremental_streaming_output"] else "cumulative"

    def abort(self, rid: str) -> None:
        self._call("/abort_request", {"rid": rid})

    def tokenize(self, text: str) -> list[int]:
        return self._call("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]  # type: ignore[no-any-return]

    def answer(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The same request without a stream."""
        return self._call("/generate", {**payload, "stream": False})  # type: ignore[no-any-return]

    def _call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            text = response.read()
        return json.loads(text) if text else None


@contextmanager
def started(folder: Path, mode: Mode) -> Iterator[LiveServer]:
    """Start a server of ``setup.sh``'s folder on a free port, and stop it afterwards."""
    run = folder / "run"
    run.mkdir(exist_ok=True)
    truth, log = run / f"live-{mode}.truth.jsonl", run / f"live-{mode}.log"
    truth.unlink(missing_ok=True)
    port = _free_port()
    command = [
        folder / "venv/bin/python", SCRIPTS / "serve_truth.py",
        "--model-path", MODEL, "--load-format", "dummy", "--device", "cpu", "--grammar-backend", "none",
        "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
        "--disable-radix-cache", "--max-total-tokens", 2 * CONTEXT, "--max-running-requests", RUNNING,
        "--host", "127.0.0.1", "--port", port, "--skip-server-warmup",
        "--enable-custom-logit-processor", "--enable-return-routed-experts",
        *(["--incremental-streaming-output"] if mode == "incremental" else []),
    ]  # fmt: skip
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(SCRIPTS),
        "TRUTH_FILE": str(truth),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await_health(url, process, log)
        truth.touch()
        processor = folder / "clp.txt"
        yield LiveServer(url, truth, processor.read_text() if processor.exists() else None)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            # Its scheduler and detokenizer, should they have outlived it; the group is the server's own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    """Of those that systems do not hand out by themselves: nobody must get it in the minute that the server needs."""
    ports = random.sample(range(20_000, 30_000), 50)
    for port in ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"none of these ports is free: {ports}")


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if f"Uvicorn running on {url}" in log.read_text(errors="replace"):
            with suppress(OSError), urllib.request.urlopen(url + "/health", timeout=10):
                return
        time.sleep(1)
    sys.stderr.write(log.read_text(errors="replace")[-4000:])
    raise AssertionError(f"the server did not start; its log is {log}")
