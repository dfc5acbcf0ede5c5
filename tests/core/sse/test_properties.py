"""Properties of the parser on random bytes: it is the norm, whatever the cut, and it never waits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssefold import SSEParser, encode_event

from .feeding import cut, expected, parse, tiny_thresholds
from .reference import first_excess, interpret
from .strategies import at, events, offsets, short_streams, streams


@given(streams, offsets, st.booleans())
@example(b"event: \ndata: an empty type is none\n\n", [], False)
@example(b"data: :\n\n", [1 / 9 * n for n in range(9)], False)  # the last byte of each piece was lost
def test_equals_the_norm(stream: bytes, parts: list[float], comments: bool) -> None:
    wanted = expected(interpret(stream), comments=comments)
    for pieces in ([stream], cut(stream, at(stream, parts)), [stream[n : n + 1] for n in range(len(stream))]):
        assert parse(pieces, comments=comments) == wanted


@given(streams, offsets, st.booleans())
def test_equals_the_norm_with_tiny_thresholds(stream: bytes, parts: list[float], comments: bool) -> None:
    """The same where every large-value path is taken."""
    wanted = expected(interpret(stream), comments=comments)
    with tiny_thresholds():
        for pieces in ([stream], cut(stream, at(stream, parts)), [stream[n : n + 1] for n in range(len(stream))]):
            assert parse(pieces, comments=comments) == wanted


@given(st.lists(streams, max_size=4), st.text(max_size=5))
def test_each_read_gives_all_that_it_completes(pieces: list[bytes], last_event_id: str) -> None:
    """An event is out with the read that ends it, and the IDs and times are never ahead or behind."""
    parser = SSEParser(last_event_id=last_event_id)
    arrived = b""
    given_out = 0
    for piece in pieces:
        arrived += piece
        outcome = interpret(arrived, last_event_id)
        new = parser.feed(piece)
        assert [(event.event, event.data, event.id) for event in new] == outcome.events[given_out:]
        assert parser.last_event_id == outcome.last_event_id
        assert parser.reconnection_time == outcome.reconnection_time
        given_out = len(outcome.events)


@pytest.mark.parametrize("comments", [False, True])
@given(stream=short_streams, parts=offsets, limit=st.integers(1, 12))
@example(stream=b"data: ab\ndata", parts=[], limit=2)
@example(stream=b"data: ab\ndata\n", parts=[], limit=2)
@example(stream=b"event: ab\nevent: a\n", parts=[], limit=2)
def test_the_bound_is_the_same_in_every_cut(stream: bytes, parts: list[float], limit: int, *, comments: bool) -> None:
    """Whether, and after which events, a stream breaks the bound depends on its bytes alone."""
    excess = first_excess(stream, limit, comments=comments)
    before = stream if excess is None else stream[: excess - 1]
    for pieces in ([stream], cut(stream, at(stream, parts)), [stream[n : n + 1] for n in range(len(stream))]):
        seen = parse(pieces, max_event_size=limit, comments=comments)
        assert bool(seen.failure) == (excess is not None)
        assert seen.events == interpret(before).events
        if excess is not None:
            assert f"max_event_size={limit} " in seen.failure


@given(st.lists(events, max_size=6), offsets)
def test_parsing_what_was_encoded_gives_it_back(
    sent: list[tuple[str, str | None, str | None, int | None]], parts: list[float]
) -> None:
    stream = b"".join(encode_event(data, event=event, id=last_id, retry=retry) for data, event, last_id, retry in sent)
    wanted: list[tuple[str, str, str]] = []
    last_event_id = ""
    reconnection_time: int | None = None
    for data, event, new_id, retry in sent:
        last_event_id = last_event_id if new_id is None else new_id
        reconnection_time = reconnection_time if retry is None else retry
        wanted.append((event or "message", data, last_event_id))
    seen = parse(cut(stream, at(stream, parts)))
    assert seen.events == wanted
    assert (seen.last_event_id, seen.reconnection_time) == (last_event_id, reconnection_time)
    assert seen.unfinished is False


@given(st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"")))
def test_any_bytes_but_cr_come_back_as_data(data: bytes) -> None:
    (event,) = SSEParser().feed(encode_event(data))
    assert event.data_bytes == data
