"""What must hold for any bytes whatever, one function a target.

The invariant of all: bytes are folded, or refused with one of the documented errors, never another; and however the
bytes were cut and whichever way they went through the library, the outcome is the same.  A target raises
``AssertionError`` or an undocumented exception when that is broken.  Knows nothing of atheris: the test suite replays
seeds and findings through the same functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from ssefold import (
    Accumulator,
    GenerateDecoder,
    ReplayError,
    Snapshot,
    SnapshotError,
    SSEParser,
    StreamError,
    TopPReplay,
    Update,
)
from ssefold.fold.payload import parse_payload
from ssefold.replay import decode_int32
from tests.core.sse.reference import interpret
from tests.fuzz.differ import compare
from tests.fuzz.mutate import mutated

_MOST_CUT = 4096


def sse(data: bytes) -> None:
    """The parser equals the literal transcription of the norm, whole and in pieces."""
    wanted = [(event, text) for event, text, _ in interpret(data).events]
    for reads in _cuts(data):
        parser = SSEParser()
        events = [event for read in reads for event in parser.feed(read)]
        assert [(event.event, event.data) for event in events] == wanted


def decoder(data: bytes) -> None:
    """Any bytes give the same updates, outputs and kind of failure in every cut, and on both paths."""
    wanted, full, reason = _decode([data], fast_path=False)
    for reads in _cuts(data):
        for fast_path in (True, False):
            updates, found, error = _decode(reads, fast_path=fast_path)
            assert type(error) is type(reason), (error, reason)
            assert updates == wanted
            assert found.snapshots() == full.snapshots()


def streams(data: bytes) -> None:
    """The same for real streams in which a few things were changed, as ``data`` says; and for both paths."""
    decoder(mutated(data[1:]))
    compare(random.Random(data))


def chunks(data: bytes) -> None:
    """``Accumulator.add`` is atomic: it raises and changes nothing, or returns; and it does not touch the chunk."""
    parser = SSEParser()
    accumulator = Accumulator()
    for event in parser.feed(mutated(data)):
        try:
            chunk = parse_payload(event.data_bytes)
        except StreamError:
            continue
        before, text = accumulator.snapshot(), repr(chunk)
        try:
            accumulator.add(chunk)
        except StreamError as error:
            assert error.partial
            if accumulator.error is None:
                assert accumulator.snapshot() == before
        assert repr(chunk) == text


def snapshot(data: bytes) -> None:
    """Bytes that are no snapshot of ours are refused; those that are come back as they were."""
    try:
        restored = Snapshot.from_bytes(data)
    except SnapshotError:
        return
    assert restored.to_bytes() == data
    Accumulator.restore(restored).native_response()


def replay(data: bytes) -> None:
    """Replay arrays are taken or refused with ``ReplayError``; those taken are consistent."""
    half = len(data) // 2
    for value in (data, data.decode("latin-1"), list(data), [list(data[:half]), list(data[half:])]):
        try:
            decode_int32(value, field="fuzz")
        except ReplayError:
            continue
    try:
        top_p = TopPReplay(data[:half], data[half:])
    except ReplayError:
        return
    rows = [list(top_p.kept(row)) for row in range(len(top_p))]
    assert sum(map(len, rows)) == len(top_p.token_ids)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (sse, decoder, streams, chunks, snapshot, replay)
}


def _decode(reads: list[bytes], *, fast_path: bool) -> tuple[list[Update], GenerateDecoder, StreamError | None]:
    found = GenerateDecoder(fast_path=fast_path)
    updates: list[Update] = []
    try:
        for read in reads:
            updates += found.feed(read)
        found.close()
    except StreamError as error:
        assert dict(error.partial) == found.snapshots()
        return updates, found, error
    return updates, found, None


def _cuts(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    half = len(data) // 2
    yield [data[:half], data[half:]]
    if len(data) <= _MOST_CUT:
        yield [data[at : at + 1] for at in range(len(data))]
    else:
        yield [data[at : at + 997] for at in range(0, len(data), 997)]
