"""The map of a payload: where each value stands in its bytes, and which payloads have none."""

from __future__ import annotations

import pytest

from ssefold.fast.spans import find_spans

PAYLOAD = (
    '{"text":"h\u00e9 \\"x\\"", "output_ids" : [1, 2] ,"meta_info":{"n":-12,"rows":[[1]],"id":"r"},"index":0}'.encode()
)


def _inside(payload: bytes) -> dict[tuple[str, ...], tuple[str, bytes]]:
    return {span.path: (span.kind, payload[span.start : span.end]) for span in find_spans(payload)}


def test_values_stand_where_the_map_says() -> None:
    assert _inside(PAYLOAD) == {
        ("text",): ('"', 'h\u00e9 \\"x\\"'.encode()),
        ("output_ids",): ("[", b"1, 2"),
        ("meta_info", "n"): ("0", b"-12"),
        ("meta_info", "rows"): ("[", b"[1]"),
        ("meta_info", "id"): ('"', b"r"),
        ("index",): ("0", b"0"),
    }
    starts = [span.start for span in find_spans(PAYLOAD)]
    assert starts == sorted(starts)


def test_white_space_is_passed_over() -> None:
    assert _inside(b' \t\r\n{ "a" : "b" , "c" : [ ] } ') == {("a",): ('"', b"b"), ("c",): ("[", b" ")}
    assert find_spans(b"{}") == []


@pytest.mark.parametrize("value", [b"null", b"true", b"false", b'{"b":"c"}'])
def test_values_that_do_not_grow_have_no_place(value: bytes) -> None:
    assert set(_inside(b'{"a":%s,"d":"e"}' % value)) == {("d",)}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"[1]",
        b'"a"',
        b'["a"}',
        b'{"a":"b"',
        b'{"a":"b",',
        b'{1:"b"}',
        b'{"x":"y",1:"b"}',
        b'{"a" "b"}',
        b'{"x":"y","a"1}',
        b'{"a":}',
        b'{"a":"b","a":"c"}',
        b'{"a":"b","\\u0063":"d"}',
        b'{"a":"b","meta_info":{"x":[1],"x":[2]}}',
        b'{"a":"b","meta_info":{1:[1]}}',
        b'{"a":"\xff"}',
        b'{"a":"b","c":' + b"[" * 100_000,
    ],
)
def test_what_is_odd_has_no_map(payload: bytes) -> None:
    assert find_spans(payload) == []


def test_meta_info_that_is_no_object_is_a_value_as_others_are() -> None:
    assert set(_inside(b'{"meta_info":[1],"x":{"meta_info":{"y":"z"}}}')) == {("meta_info",)}
    assert set(_inside(b'{"meta_info":{"meta_info":{"y":"z"},"w":[]}}')) == {("meta_info", "w")}
