"""``ServerSentEvent`` as a value."""

from __future__ import annotations

import copy
import pickle

import pytest

from ssefold import ServerSentEvent, SSEParser

EVENT = ServerSentEvent("delta", b'{"t": "\xc3\xa9"}', "5")


def test_fields() -> None:
    (event,) = SSEParser().feed(b'id: 5\nevent: delta\ndata: {"t": "\xc3\xa9"}\n\n')
    assert type(event) is ServerSentEvent
    assert (event.event, event.data_bytes, event.data, event.id) == ("delta", EVENT[1], '{"t": "\u00e9"}', "5")
    name, data, last_id = event
    assert (name, data, last_id) == ("delta", EVENT[1], "5")


def test_constructor() -> None:
    assert ServerSentEvent() == ServerSentEvent("message", b"", "")
    assert ServerSentEvent(event="delta", data_bytes=EVENT.data_bytes, id="5") == EVENT


def test_data_replaces_what_is_not_utf8() -> None:
    assert ServerSentEvent(data_bytes=b"a\xffb").data == "a\ufffdb"


def test_is_comparable_and_hashable() -> None:
    same = ServerSentEvent("delta", bytes(EVENT.data_bytes), "5")
    assert same == EVENT
    assert hash(same) == hash(EVENT)
    assert len({EVENT, same}) == 1
    for other in (("x", EVENT.data_bytes, "5"), ("delta", b"", "5"), ("delta", EVENT.data_bytes, "")):
        assert ServerSentEvent(*other) != EVENT


@pytest.mark.parametrize("name", ["event", "data_bytes", "data", "id", "anything"])
def test_is_immutable(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(EVENT, name, "x")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    back = pickle.loads(pickle.dumps(EVENT, protocol))
    assert type(back) is ServerSentEvent
    assert back == EVENT


def test_copies() -> None:
    for back in (copy.copy(EVENT), copy.deepcopy(EVENT)):
        assert type(back) is ServerSentEvent
        assert back == EVENT


def test_repr_shows_all_of_a_short_event_and_the_start_of_a_long_one() -> None:
    assert repr(ServerSentEvent("e", b"x", "1")) == "ServerSentEvent(event='e', data_bytes=b'x', id='1')"
    long = repr(ServerSentEvent(data_bytes=b"0123456789" * 20_000))
    assert len(long) < 200
    assert "... 200000 bytes" in long


def test_match_statement() -> None:
    match EVENT:
        case (event, data, last_id):
            assert (event, data, last_id) == ("delta", b'{"t": "\xc3\xa9"}', "5")
        case _:
            pytest.fail("an event is a sequence of three")
