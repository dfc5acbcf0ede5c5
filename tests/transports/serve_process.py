"""A fake server in a process of its own: prints its url, serves until its standard input ends, prints its account."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from subprocess import PIPE, Popen
from typing import Any

from ssefold.transports.testing import FakeSGLang


class ServerProcess(AbstractContextManager["ServerProcess"]):
    """Starts this file; ``account`` is there after the block."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.url = ""
        self.account: dict[str, int] = {}

    def __enter__(self) -> ServerProcess:
        self._process = Popen([sys.executable, __file__, json.dumps(self._options)], stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is not None:
            self._process.kill()  # what went wrong here is what matters
        out, _ = self._process.communicate("")
        if exc_info[0] is not None:
            return
        self.account = json.loads(out)
        assert self._process.returncode == 0


if __name__ == "__main__":
    with FakeSGLang(**json.loads(sys.argv[1])) as server:
        print(server.url, flush=True)  # noqa: T201
        sys.stdin.read()
        server.wait_until(lambda counters: counters.running == 0 and counters.connections == 0, timeout=120)
    print(json.dumps(asdict(server.counters)))  # noqa: T201
