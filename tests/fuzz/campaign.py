"""All targets one after the other: ``python -m tests.fuzz.campaign SECONDS [CORPUS_DIR]``.

Divides the time among the targets, prints one line for each, and exits with 1 if any found something.  Without atheris
(other systems, other Pythons) it says so and exits with 0; the test suite runs the same targets on drawn bytes.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

_STATS = re.compile(r"stat::(number_of_executed_units|peak_rss_mb):\s+(\d+)")
_COVERAGE = re.compile(r"cov: (\d+)")


def main(arguments: list[str]) -> int:
    """Fuzz for so many seconds in all."""
    seconds = max(int(arguments[0]) // len(TARGETS), 1)
    corpus = Path(arguments[1]) if len(arguments) > 1 else None
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: skipped, atheris is not installed (it has wheels for CPython 3.11 to 3.13 on Linux)")
        return 0
    found = False
    for name in TARGETS:
        command = [sys.executable, "-m", "tests.fuzz.run", name, str(seconds)]
        if corpus is not None:
            command.append(str(corpus / name))
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        output = done.stdout + done.stderr
        stats = dict(_STATS.findall(output))
        coverage = _COVERAGE.findall(output)
        print(
            f"fuzz: {name}: {stats.get('number_of_executed_units', '?')} executions in {seconds} s, "
            f"coverage {coverage[-1] if coverage else '?'} edges, "
            + ("no finding" if done.returncode == 0 else f"FAILED with status {done.returncode}"),
            flush=True,
        )
        if done.returncode:
            found = True
            print(output[-4000:])
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
