"""Both paths on one stream: everything that a caller can see must be the same, read by read.

``python -m tests.fuzz.differ SECONDS [SEED]`` runs edited streams one after the other and prints the seed of each on
which the paths differ; ``python -m tests.fuzz.differ replay SEED`` shows one.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from ssefold import GenerateDecoder, StreamError, Update
from ssefold.fast import values
from ssefold.fold import payload as payload_module
from tests.core.by_hand import exact
from tests.fuzz.edits import edited, framed, reads
from tests.fuzz.real import adorned, payloads

Seen = dict[str, Any]


def stream(chance: random.Random) -> tuple[list[bytes], int, dict[str, Any]]:
    """Framed events, how many edits they have had, and the options to decode them with."""
    events = adorned(chance, payloads(chance))
    edits = chance.randint(1, 3)
    edited(chance, events, edits)
    options: dict[str, Any] = {}
    if chance.random() < 0.1:
        options["mode"] = chance.choice(("cumulative", "incremental"))
    if chance.random() < 0.2:
        options["on_bad_json"] = "skip"
    if chance.random() < 0.05:
        options["max_event_size"] = max(max(map(len, events), default=1) + chance.randint(-3, 3), 1)
    return framed(chance, events), edits, options


def compare(chance: random.Random) -> tuple[int, int]:
    """Fold one stream on both paths, in the same reads and in others; returns its edits and in how many cuts."""
    events, edits, options = stream(chance)
    cut = reads(chance, events)
    full, fast = seen(cut, fast_path=False, **options), seen(cut, **options)
    assert fast == full, difference(fast, full)
    other = seen(reads(chance, events), **options)
    for one in (other, full):
        one.pop("by read")
        if "max_event_size" in options:
            one.pop("words")  # of an event that is too large the message names what was held
    assert other == full, difference(other, full)
    return edits, 3


def seen(cut: list[bytes], **options: Any) -> Seen:
    """What a caller sees of a body."""
    decoder = GenerateDecoder(**options)
    updates: list[Update] = []
    by_read: list[int] = []
    failure: StreamError | None = None
    for read in cut:
        try:
            updates += decoder.feed(read)
        except StreamError as error:
            failure = failure or error
        by_read.append(len(updates))
    try:
        decoder.close()
    except StreamError as error:
        failure = failure or error
    assert decoder.error is failure
    return {
        "updates": [shown(update) for update in updates],
        "outputs": {index: one.to_bytes() for index, one in decoder.snapshots().items()},
        "lanes": {index: dict(output.lanes) for index, output in decoder.outputs.items()},
        "order": [(index, list(output.meta_info)) for index, output in decoder.outputs.items()],
        "error": type(failure),
        "words": str(failure),
        "partial": {} if failure is None else {index: one.to_bytes() for index, one in failure.partial.items()},
        "done": decoder.done,
        "skipped": decoder.skipped,
        "cut": decoder.cut,
        "by read": by_read,
    }


def shown(update: Update) -> str:
    """All of an update, with 0.0 and -0.0, 1 and True told apart."""
    rest = (update.index, update.start, update.replace, update.token_ids, update.logprobs, update.text)
    more = (update.text_start, update.finish_reason, update.top_p, update.routed_experts, update.indexer_topk)
    return f"{rest!r} {more!r} {exact(update.meta_info)}"


def difference(one: Seen, other: Seen) -> str:
    """The first thing that differs."""
    for name, value in one.items():
        if other.get(name, value) != value:
            if name == "updates":
                for at, (left, right) in enumerate(zip(value, other[name], strict=False)):
                    if left != right:
                        return f"update {at}:\n  {left}\n  {right}"
            return f"{name}:\n  {value}\n  {other[name]}"
    return "nothing"


def without_orjson() -> None:
    """Parse with the standard library from here on."""
    for module in (payload_module, values):
        module.json_backend = lambda: payload_module.loads_json  # type: ignore[attr-defined]
    from ssefold.fast import match

    match.json_backend = lambda: payload_module.loads_json  # type: ignore[attr-defined]


def main(arguments: list[str]) -> int:
    """Run for so many seconds, or replay one seed."""
    if arguments[0] == "replay":
        chance = random.Random(arguments[1])
        events, _, options = stream(random.Random(arguments[1]))
        print(options, *events, sep="\n")
        compare(chance)
        return 0
    seconds, seed = int(arguments[0]), arguments[1] if len(arguments) > 1 else "0"
    if seed.startswith("json"):
        without_orjson()
    end = time.monotonic() + seconds
    streams = edits = cuts = found = 0
    told = time.monotonic()
    while time.monotonic() < end:
        name = f"{seed}:{streams}"
        try:
            more, folded = compare(random.Random(name))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            found += 1
            print(f"FOUND {name}: {type(error).__name__} {str(error)[:600]}", flush=True)
            more = folded = 0
        streams, edits, cuts = streams + 1, edits + more, cuts + folded
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(
                f"{streams} streams, {edits} edits, {cuts} folds, {found} found, {time.process_time():.0f} s CPU",
                flush=True,
            )
    print(
        f"end: {streams} streams, {edits} edits, {cuts} folds, {found} found, {time.process_time():.0f} s CPU",
        flush=True,
    )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
