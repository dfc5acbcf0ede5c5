"""What ``feed`` takes, what the callback sees, and what the constructor refuses."""

from __future__ import annotations

import array

import pytest

from ssefold import EventTooLargeError, ServerSentEvent, SSEParser

STREAM = b"event: e\nid: 5\ndata: one\ndata: two\n\ndata: three \n\n:\n"[:50]
EVENTS = [ServerSentEvent("e", b"one\ntwo", "5"), ServerSentEvent("message", b"three ", "5")]


class _Bytes(bytes):
    """A subclass may redefine anything; only its buffer counts."""

    def find(self, *_: object) -> int:
        raise AssertionError


@pytest.mark.parametrize(
    "data",
    [
        STREAM,
        _Bytes(STREAM),
        bytearray(STREAM),
        memoryview(STREAM),
        memoryview(bytearray(STREAM)),
        memoryview(STREAM).cast("B", (5, 10)),
        memoryview(array.array("H", STREAM)),
        memoryview(STREAM[::-1])[::-1],
        memoryview(b"".join(b"%c " % byte for byte in STREAM))[::2],
    ],
    ids=["bytes", "subclass", "bytearray", "view", "mutable view", "two dimensions", "16 bit", "reversed", "strided"],
)
def test_feed_takes_any_buffer_of_the_three_types(data: bytes | bytearray | memoryview) -> None:
    assert SSEParser().feed(data) == EVENTS


def test_a_mutable_buffer_can_be_used_again() -> None:
    parser = SSEParser()
    buffer = bytearray(8192)
    events: list[ServerSentEvent] = []
    stream = b"data: " + bytes(range(65, 91)) * 1000 + b"\n\n"
    for start in range(0, len(stream), len(buffer)):
        piece = stream[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        events += parser.feed(memoryview(buffer)[: len(piece)])
        buffer[:] = b"\0" * len(buffer)
        buffer.extend(b"x")  # a view that was kept would forbid this
        del buffer[-1]
    assert [event.data_bytes for event in events] == [stream[6:-2]]


@pytest.mark.parametrize("wrong", ["data: x\n\n", None, 5, [b"data"], array.array("B", STREAM)])
def test_another_type_is_refused_and_changes_nothing(wrong: object) -> None:
    parser = SSEParser()
    parser.feed(b"data: a")
    with pytest.raises(TypeError, match=rf"^feed\(\) takes bytes, bytearray or memoryview, not {type(wrong).__name__}"):
        parser.feed(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert parser.feed(b"b\n\n") == [ServerSentEvent("message", b"ab", "")]


def test_str_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="feed the response's bytes, undecoded"):
        SSEParser().feed("data: x\n\n")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_nothing_fed_gives_nothing() -> None:
    parser = SSEParser()
    for piece in (b"", b"\xef\xbb\xbf", b"", b"data: a", b"", b"\r", b"", b"\n", b""):
        assert parser.feed(piece) == []
    assert parser.feed(b"\r") == [ServerSentEvent("message", b"a", "")]
    assert parser.feed(b"") == []
    assert parser.close() is False


@pytest.mark.parametrize("size", [0, -1])
def test_a_bound_that_allows_nothing_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"max_event_size must be a positive whole number of bytes, not {size}"):
        SSEParser(max_event_size=size)


@pytest.mark.parametrize(
    ("digits", "milliseconds"),
    [
        (b"0", 0),
        (b"0003000", 3000),
        (b"9" * 640, int("9" * 640)),
        (b"0" * 10_000 + b"7", 7),
        (b"9" * 641, 5),
        (b"9" * 100_000, 5),
        (b"", 5),
        (b"+1", 5),
        (b"1.0", 5),
        ("\u0663".encode(), 5),
    ],
)
def test_retry_takes_ascii_digits_that_make_a_time(digits: bytes, milliseconds: int) -> None:
    parser = SSEParser()
    parser.feed(b"retry: 5\nretry: " + digits + b"\n")
    assert parser.reconnection_time == milliseconds


def test_reset_drops_the_event_and_keeps_what_belongs_to_the_source() -> None:
    parser = SSEParser()
    parser.feed(b"retry: 7\nid: 1\ndata: a\n\nevent: e\nid: 2\ndata: b")
    parser.reset()
    assert (parser.last_event_id, parser.reconnection_time) == ("1", 7)
    assert parser.feed(b"\xef\xbb\xbfdata: c\n\n") == [ServerSentEvent("message", b"c", "1")]


@pytest.mark.parametrize(
    ("data", "unfinished"),
    [
        # lines that are complete
        (b"data\n", True),
        (b"event: a\n", True),
        (b"id: 1\n", True),
        (b"retry: 1\n", False),
        (b"other: 1\n", False),
        (b": comment\n", False),
        # lines that are not: what belongs to an event
        (b"data: a", True),
        (b"event: a", True),
        (b"id: 1", True),
        (b"id:", True),
        (b"retry: 1", False),
        (b"other: 1", False),
        (b": comment", False),
        # and what may become one of its fields
        (b"d", True),
        (b"event", True),
        (b"i", True),
        (b"r", False),
        (b"other", False),
        (b"data: a\n\n", False),
        (b"data: a\n\nretry: 1\nid: 7", True),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["in one", "in bytes"])
def test_close_says_whether_an_event_was_begun(data: bytes, unfinished: bool, apart: bool) -> None:
    parser = SSEParser()
    for piece in [data[at : at + 1] for at in range(len(data))] if apart else [data]:
        parser.feed(piece)
    assert parser.close() is unfinished
    assert parser.close() is False


@pytest.mark.parametrize("line", [b"id: 7\n", b"retry: 9\n", b": a comment\n", b"data: a\n", b"\n", b"even: a\n"])
def test_a_named_event_among_others(line: bytes) -> None:
    parser = SSEParser()
    named = b"event: e\ndata: 1\n\n"
    events = parser.feed(3 * named + line + b"data: 2\n\n" + named)
    last_id = "7" if line == b"id: 7\n" else ""
    middle = b"a\n2" if line == b"data: a\n" else b"2"
    assert events[:3] == [ServerSentEvent("e", b"1", "")] * 3
    assert events[3:] == [ServerSentEvent("message", middle, last_id), ServerSentEvent("e", b"1", last_id)]
    assert parser.reconnection_time == (9 if line == b"retry: 9\n" else None)


@pytest.mark.parametrize("line", [b"id: 7\n", b"event: e\n", b": a comment\n", b"data: a\n", b"even: a\n"])
def test_a_line_among_small_events(line: bytes) -> None:
    """Small events of one data line are split off together; not where one of them has another line."""
    events = SSEParser().feed(b"data: 1\n\ndata: 2\n" + line + b"\ndata: 3\n\n")
    assert [event.data for event in events] == ["1", "2\na" if line == b"data: a\n" else "2", "3"]
    assert [event.event for event in events] == ["message", "e" if line == b"event: e\n" else "message", "message"]
    assert [event.id for event in events] == (["", "7", "7"] if line == b"id: 7\n" else [""] * 3)


def test_a_callback_may_raise_what_the_parser_raises() -> None:
    def refuses(_: str) -> None:
        raise EventTooLargeError("from the callback")

    parser = SSEParser(on_comment=refuses)
    with pytest.raises(EventTooLargeError, match="from the callback"):
        parser.feed(b": x\n")
    with pytest.raises(ValueError, match="on_comment raised"):
        parser.feed(b"")


def test_comments_are_handed_out_when_their_line_ends() -> None:
    comments: list[str] = []
    parser = SSEParser(on_comment=comments.append)
    parser.feed(b": keep-al")
    assert comments == []
    parser.feed(b"ive\r")
    assert comments == ["keep-alive"]
    parser.feed(b"\n:\n:  two spaces\n:\xff\n")
    assert comments == ["keep-alive", "", " two spaces", "\ufffd"]
    assert parser.close() is False


def _fails(_: str) -> None:
    raise KeyError("from the callback")


@pytest.mark.parametrize("cut", [0, 12, 16])
def test_a_callback_that_raises_stops_the_parser(cut: int) -> None:
    stream = b"data: a\n\n: x\ndata: b\n\n"
    parser = SSEParser(on_comment=_fails)
    with pytest.raises(KeyError, match="from the callback"):
        _feed_all(parser, stream[:cut], stream[cut:])
    with pytest.raises(ValueError, match=r"on_comment raised.*call reset\(\)"):
        parser.feed(b"data: c\n\n")
    parser.reset()
    assert parser.feed(b"data: d\n\n") == [ServerSentEvent("message", b"d", "")]


def _feed_all(parser: SSEParser, *pieces: bytes) -> None:
    for piece in pieces:
        parser.feed(piece)


def test_a_callback_must_not_call_the_parser() -> None:
    parsers: list[SSEParser] = []

    def call_the_parser(_: str) -> None:
        parsers[0].feed(b"data: x\n\n")

    parser = SSEParser(on_comment=call_the_parser)
    parsers.append(parser)
    with pytest.raises(ValueError, match="called the parser"):
        parser.feed(b": x\n")
