"""Run a target under atheris: ``python -m tests.fuzz.run TARGET SECONDS [CORPUS_DIR]``.

Coverage-guided where atheris is installed (CPython on Linux), which instruments the core as it is imported.  Prints
executions and coverage as libFuzzer does; a finding is written to ``tests/data/regressions/TARGET-HASH``, where the
test suite replays it from then on.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import atheris  # pyright: ignore[reportMissingImports]

REGRESSIONS = Path(__file__).parents[1] / "data" / "regressions"


def main(arguments: list[str]) -> None:
    """Fuzz one target for some seconds; exits with libFuzzer's status."""
    name, seconds = arguments[0], int(arguments[1])
    corpus = Path(arguments[2]) if len(arguments) > 2 else Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    corpus.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["ssefold"]):  # pyright: ignore[reportAttributeAccessIssue]
        from tests.fuzz.seeds import seeds
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    for seed in seeds(name):
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)

    def one(data: bytes) -> None:
        try:
            target(data)
        except BaseException:
            REGRESSIONS.mkdir(parents=True, exist_ok=True)
            (REGRESSIONS / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)
            raise

    options = [
        f"-max_total_time={seconds}",
        "-timeout=30",
        "-rss_limit_mb=2048",
        "-max_len=16384",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
