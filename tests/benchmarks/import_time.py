"""What an import costs: ``python -m tests.benchmarks.import_time``.

CPU time of a fresh interpreter that imports a module, less that of one that imports nothing; the least of several
rounds, since whatever else the machine does only adds to it.  Bytecode is on disk by the second round.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from resource import RUSAGE_CHILDREN, getrusage

#: The bar is 30 ms for the first; the others are here to be compared with what they bring in.
MODULES = (
    "ssefold",
    "ssefold.transports",
    "ssefold.transports.httpx",
    "ssefold.adapters.rollout",
    "ssefold.adapters.cli",
    "asyncio",
    "orjson",
)


def measure(modules: Sequence[str] = MODULES, *, rounds: int = 15) -> dict[str, float]:
    """Milliseconds of CPU time by module, in turns, so that a slow minute hits all of them."""
    least = dict.fromkeys(["", *modules], float("inf"))
    for _ in range(rounds):
        for module in least:
            least[module] = min(least[module], _cpu_time(f"import {module}" if module else ""))
    return {module: 1000 * (least[module] - least[""]) for module in modules}


def _cpu_time(code: str) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    for module, milliseconds in measure().items():
        sys.stdout.write(f"{module:28} {milliseconds:6.1f} ms\n")
