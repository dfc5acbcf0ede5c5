"""The command on a large recording: CPU time and memory of `ssefold check`, `convert` and `anonymize`.

Each runs in a process of its own, as a user runs it, start of Python included; what the system accounts to that process
is what is reported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bodies import body_of, make_answer
from tests.benchmarks.report import Bar, Section
from tests.benchmarks.scale import Scale

#: What is run, with the seconds of CPU and the megabytes it is held to.
_COMMANDS: tuple[tuple[Sequence[str], float, float], ...] = (
    (("check",), 3, 60),
    (("convert", "--to", "incremental", "-o", os.devnull), 10, 200),
    (("convert", "--to", "cumulative", "-o", os.devnull), 10, 200),
    (("anonymize", "-o", os.devnull), 10, 200),
)


@dataclass(frozen=True)
class Cost:
    """Of one process: CPU in seconds, user and system together, and the most memory that was resident, in MB."""

    cpu: float
    memory: float


def measure(scale: Scale) -> list[Section]:
    """A recording of ``scale.main`` tokens, cumulative, with logprobs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recorded.sse"
        with path.open("wb") as file:
            file.writelines(body_of(make_answer(scale.main)))
        size = path.stat().st_size / 1e6
        costs = {words: least(words, path, scale.few_rounds) for words, _, _ in _COMMANDS}
    bars: list[Bar] = []
    rows: list[list[str]] = []
    for words, seconds, megabytes in _COMMANDS:
        name, cost = "ssefold " + " ".join(words).removesuffix(f" -o {os.devnull}"), costs[words]
        rows.append([name, f"{cost.cpu:.2f}", f"{cost.memory:.0f}", f"{size / cost.cpu:,.0f}"])
        measured = f"{cost.cpu:.2f} s, {cost.memory:.0f} MB"
        reached = cost.cpu <= seconds and cost.memory <= megabytes
        bars.append(Bar(f"`{name}` of {size:,.0f} MB", f"at most {seconds:g} s, {megabytes:g} MB", measured, reached))
    text = (
        f"A recording of {scale.main:,} tokens, cumulative, with logprobs: {size:,.1f} MB. Each command runs in a "
        "process of its own. CPU time includes the start of Python and is the least of some rounds; memory is the most "
        "that was resident."
    )
    return [Section("The command", text, ["command", "CPU s", "MB", "MB/s"], rows, bars)]


def least(words: Sequence[str], path: Path, rounds: int) -> Cost:
    """The cheapest of some runs on a recording."""
    costs = [cost_of([sys.executable, "-m", "ssefold.adapters.cli", *words, str(path)]) for _ in range(rounds)]
    return Cost(min(cost.cpu for cost in costs), min(cost.memory for cost in costs))


def cost_of(arguments: Sequence[str]) -> Cost:
    """Run it, and ask the system what it used.

    :raises RuntimeError: it failed.
    """
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)
