"""``encode_event``: the bytes that it writes, and what it refuses to write."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import SSEParser, encode_event


@pytest.mark.parametrize(
    ("arguments", "wire"),
    [
        ({"data": "x"}, b"data: x\n\n"),
        ({"data": b'{"a": 1}'}, b'data: {"a": 1}\n\n'),
        ({"data": ""}, b"data: \n\n"),
        ({"data": " x"}, b"data:  x\n\n"),
        ({"data": "a\n\nb\n"}, b"data: a\ndata: \ndata: b\ndata: \n\n"),
        ({"data": "\u2028\x85\u00e9"}, "data: \u2028\x85\u00e9\n\n".encode()),
        ({"data": "x", "event": "e", "id": "i", "retry": 5}, b"event: e\nid: i\nretry: 5\ndata: x\n\n"),
        ({"data": "x", "id": ""}, b"id: \ndata: x\n\n"),
        ({"data": "x", "retry": 0}, b"retry: 0\ndata: x\n\n"),
    ],
)
def test_wire(arguments: dict[str, Any], wire: bytes) -> None:
    assert encode_event(**arguments) == wire


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "a\rb"}, "data has a CR at byte 1"),
        ({"data": b"a\r\n"}, "data has a CR at byte 1"),
        ({"data": "\ud800"}, "data has no UTF-8 form"),
        ({"data": "x", "event": ""}, "event is empty"),
        ({"data": "x", "event": "a\nb"}, "event has a line end"),
        ({"data": "x", "event": "a\rb"}, "event has a line end"),
        ({"data": "x", "event": "\udfff"}, "event has no UTF-8 form"),
        ({"data": "x", "id": "a\0"}, "id has a NUL"),
        ({"data": "x", "id": "a\n"}, "id has a line end"),
        ({"data": "x", "id": "\r"}, "id has a line end"),
        ({"data": "x", "retry": -1}, "retry must be"),
        ({"data": "x", "retry": 10**640}, "retry must be"),
    ],
)
def test_what_would_not_come_back_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_event(**arguments)


@pytest.mark.parametrize("data", [None, 5, bytearray(b"x"), ["x"]])
def test_data_of_another_type_is_refused(data: Any) -> None:
    with pytest.raises(TypeError, match="data must be str or bytes, not"):
        encode_event(data)


def test_the_longest_retry_comes_back() -> None:
    parser = SSEParser()
    parser.feed(encode_event("x", retry=10**640 - 1))
    assert parser.reconnection_time == 10**640 - 1
