"""The size bound to the byte, the memory that it promises, and the cost of many small pieces."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from types import FrameType
from unittest.mock import patch

import pytest

from ssefold import EventTooLargeError, ServerSentEvent, SSEParser

from .feeding import every_cut, parse


@pytest.mark.parametrize(
    ("stream", "size"),
    [
        (b"data: 12345\n\n", 5),
        (b"data:12345\n\n", 5),
        (b"data: 12\ndata: 45\n\n", 5),  # the line end between them is a byte of the data
        (b"data\ndata\ndata\n\n", 2),
        (b"event: abc\ndata: 45\n\n", 5),
        (b"event: abc\nevent: d\ndata: 45\n\n", 4),  # both types are there while the second arrives
        (b"id: abc\ndata: 45\n\n", 5),
        (b"id: abc\ndata: 1\n\nid: abc\ndata: 45\n\n", 5),  # what an earlier event had is not counted, either way
        (b"id: \x00bcde\ndata: 1\n\n", 5),
        (b"retry: 12345\ndata: 1\n\n", 5),
        (b"data: 1\n\ndata: 12345\n\n", 5),
    ],
)
def test_the_bound_is_exact(stream: bytes, size: int) -> None:
    whole = parse([stream]).events
    for pieces in every_cut(stream):
        allowed = parse(pieces, max_event_size=size)
        assert (allowed.events, allowed.failure) == (whole, "")
        assert parse(pieces, max_event_size=size - 1).failure


@pytest.mark.parametrize("name", ["data", "event", "id", "retry"])
@pytest.mark.parametrize("end", [b"", b"\n\n"])
def test_the_field_that_went_beyond_is_named(name: str, end: bytes) -> None:
    line = f"{name}: 123456".encode()
    for pieces in ([line + end], [line[:-2], line[-2:] + end], [b"data: 1\n" + line + end]):
        said = parse(pieces, max_event_size=5).failure
        assert said.startswith(f"an event is larger than max_event_size=5 bytes, which its {name!r} field goes beyond")


@pytest.mark.parametrize(
    "line", [b": comment\n", b"unknown: field\n", b"dataset: x\n", b"e" * 50 + b"\n", b"\n", b"x\r\n"]
)
def test_what_is_not_kept_does_not_count(line: bytes) -> None:
    parser = SSEParser(max_event_size=4)
    assert parser.feed(line[:3]) == []
    assert parser.feed(line[3:] + line * 1000) == []
    assert parser.feed(b"data: 12\n" + line.strip() * 1000 + b"\n\n") == [ServerSentEvent("message", b"12", "")]


def test_comments_count_only_for_those_who_want_them() -> None:
    assert not parse([b": 12345\n"], max_event_size=4).failure
    assert parse([b": 1234\n"] * 9, max_event_size=4, comments=True).comments == ["1234"] * 9
    assert "a comment goes beyond" in parse([b": 12345"], max_event_size=4, comments=True).failure


def test_events_before_the_failure_are_returned_first() -> None:
    parser = SSEParser(max_event_size=3)
    assert [event.data for event in parser.feed(b"id: 1\ndata: a\n\ndata: b\n\ndata: 1234\n\ndata: c\n\n")] == [
        "a",
        "b",
    ]
    with pytest.raises(EventTooLargeError, match="raise max_event_size"):
        parser.feed(b"")
    with pytest.raises(EventTooLargeError):
        parser.close()
    parser.reset()
    assert parser.feed(b"data: d\n\n") == [ServerSentEvent("message", b"d", "1")]


def test_close_raises_the_failure_that_was_put_off() -> None:
    parser = SSEParser(max_event_size=3)
    assert len(parser.feed(b"data: a\n\ndata: 1234")) == 1
    with pytest.raises(EventTooLargeError, match="max_event_size=3 bytes"):
        parser.close()


@pytest.mark.parametrize(
    "piece",
    [b"x", b"xy", b"x" * 64, b"x" * 65_536, b"\ndata: xy", b"\ndata"],
    ids=["1 byte", "2 bytes", "64 bytes", "64 KiB", "short data lines", "empty data lines"],
)
def test_memory_stays_within_the_bound(piece: bytes) -> None:
    """Also where each piece is much smaller than a Python object: an eighth above the bound, and some 64 KiB."""
    bound = 2**16
    parser = SSEParser(max_event_size=bound)
    parser.feed(b"data: ")
    tracemalloc.start()
    try:
        for _ in range(bound):
            parser.feed(piece)
    except EventTooLargeError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1.125 * bound + 65_536


def test_what_is_replaced_is_let_go() -> None:
    parser = SSEParser(max_event_size=120)
    for _ in range(1000):
        assert parser.feed(b"event: " + b"e" * 40 + b"\nid: " + b"i" * 40 + b"\nretry: 1\n") == []
    (event,) = parser.feed(b"data: x\n\n")
    assert event == ServerSentEvent("e" * 40, b"x", "i" * 40)


def test_a_small_part_does_not_keep_a_large_read() -> None:
    parser = SSEParser()
    tracemalloc.start()
    parser.feed(b"unknown: " + b"x" * 2**20 + b"\ndata: " + b"y" * 5000)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 5000 <= kept < 100_000


def test_a_large_event_is_not_held_twice() -> None:
    """17 MB, as a terminal chunk with routed experts has, at the moment when its last piece arrives."""
    size = 17 * 2**20
    piece = b"x" * 65_536
    parser = SSEParser()
    tracemalloc.start()
    parser.feed(b"data: ")
    for _ in range(size // len(piece)):
        parser.feed(piece)
    (event,) = parser.feed(b"\n\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(event.data_bytes) == size
    assert peak < 1.25 * size


def _calls(work: Callable[[], None]) -> int:
    """How many functions, in Python or C, are called."""
    count = 0

    def tick(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _feed_reads(read: bytes, many: int) -> Callable[[], None]:
    def work() -> None:
        parser = SSEParser()
        parser.feed(b"data: ")
        for _ in range(many):
            parser.feed(read)
        parser.feed(b"\n\n")

    return work


@pytest.mark.parametrize("read", [b"x", b"x" * 64, b"x" * 1024, b"x\ndata: y", b"\n:", b"\r\ndata"])
def test_calls_grow_with_the_number_of_reads(read: bytes) -> None:
    assert _calls(_feed_reads(read, 8000)) < 2.1 * _calls(_feed_reads(read, 4000))


@pytest.mark.parametrize("line", [b"data: x\n\n", b"data: x\n", b"event: e\ndata: x\n\n", b"id: 1\n", b": c\n", b"\n"])
def test_calls_grow_with_the_number_of_lines_in_a_read(line: bytes) -> None:
    def work(many: int) -> Callable[[], None]:
        def feed() -> None:
            SSEParser().feed(line * many)

        return feed

    assert _calls(work(20_000)) < 2.1 * _calls(work(10_000)) + 100


def test_each_byte_is_moved_once() -> None:
    """16 MB in reads of 1 kB: what moves into the BytesIO is each byte once, and nothing is joined before the end."""
    moved: list[int] = []

    class Counting(BytesIO):
        def write(self, data: object) -> int:
            moved.append(super().write(data))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            return moved[-1]

        def writelines(self, lines: object) -> None:
            for line in lines:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
                self.write(line)

    read = b"x" * 1024
    many = 16 * 1024
    parser = SSEParser()
    with patch("ssefold.sse.buffer.BytesIO", Counting):
        parser.feed(b"data: ")
        for _ in range(many):
            parser.feed(read)
        (event,) = parser.feed(b"\n\n")
    assert sum(moved) == many * len(read) == len(event.data_bytes)
