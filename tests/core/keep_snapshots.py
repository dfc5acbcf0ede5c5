"""Snapshots of a release, kept so that every later one can be held to them: ``python -m tests.core.keep_snapshots``.

To be run once a release, before it: writes ``tests/data/snapshots/VERSION``, which is never changed afterwards.  For
each of some recorded streams there is a snapshot of every output after half of its events and after all of them, named
``STREAM.EVENTS.INDEX.bin``; ``rollout.bin`` is a sample that was aborted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import ssefold
from ssefold import Accumulator
from ssefold.adapters.rollout import RolloutSample
from tests.truth.recorded import Recorded, streams

KEPT = Path(__file__).parents[1] / "data" / "snapshots"
STREAMS = ("01", "02", "03", "04", "08", "12", "16", "20", "21", "26", "28", "29", "31", "33", "35", "36")


def outputs_after(one: Recorded, events: int) -> dict[int, Accumulator]:
    """The outputs of a stream after its first events, in automatic mode."""
    outputs: dict[int, Accumulator] = {}
    for payload in one.payloads[:events]:
        index = payload.get("index", 0)
        outputs.setdefault(index, Accumulator(index=index)).add(payload)
    return outputs


def sample() -> RolloutSample:
    """A sample with two prompt tokens and all of ``12_abort_while_running``, to be gone on with."""
    (one,) = (one for one in streams() if one.name.startswith("12"))
    rollout = RolloutSample([7, 8], sampling_params={"max_new_tokens": 9, "temperature": 1.0})
    rollout.next_payload()
    accumulator = Accumulator()
    for payload in one.payloads:
        rollout.apply(accumulator.add(payload))
    return rollout


def snapshots() -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files."""
    for one in streams():
        if one.name[:2] in STREAMS:
            count = len(one.payloads)
            for events in (count // 2, count):
                for index, output in outputs_after(one, events).items():
                    yield f"{one.name}.{events}.{index}.bin", output.snapshot().to_bytes()
    yield "rollout.bin", sample().to_bytes()


def main(folder: Path) -> None:
    """Write them all into a folder that is not there yet."""
    folder.mkdir(parents=True)
    for name, data in snapshots():
        (folder / name).write_bytes(data)
    sys.stdout.write(f"{folder}: {len(list(folder.iterdir()))} files\n")


if __name__ == "__main__":
    main(KEPT / ssefold.__version__)
