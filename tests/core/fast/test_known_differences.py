"""Inputs on which an earlier, faster way gave another result than the full one: one test each, on every cut."""

from __future__ import annotations

import pytest

from ssefold import PayloadError, ProtocolError
from tests.core.by_hand import Folded, each_byte, fold

META = (
    '{"id":"r","finish_reason":%s,"prompt_tokens":3,"output_token_logprobs":%s,"output_token_logprobs_length":%d,'
    '"completion_tokens":%d}'
)


def payload(count: int, *, text: str, ids: str, rows: str, finish: str = "null") -> str:
    return f'{{"text":"{text}","output_ids":{ids},"meta_info":{META % (finish, rows, count, count)}}}'


def event(data: str) -> bytes:
    return "".join(f"data: {line}\n" for line in data.split("\n")).encode() + b"\n"


def one(count: int, *, text: str = "a", glue: str = "") -> str:
    """The chunk of one token in an incremental stream; ``glue``: white space inside."""
    row = f"[[-0.5,{100 + count},null]]"
    return payload(count, text=text, ids=f"[{100 + count}]", rows=row).replace(',"output_ids"', f',{glue}"output_ids"')


def every_cut(events: list[bytes]) -> Folded:
    """Fold in several reads, on both paths; all must come to the same."""
    body = b"".join(events)
    folded = fold(events)
    for reads in ([body], each_byte(body), [body[: len(body) // 2], body[len(body) // 2 :]]):
        assert fold(reads).told == folded.told
    return folded


@pytest.mark.parametrize("text", ["b\nc", "b\rc", "b\tc", "b\x00c"])
def test_a_line_feed_between_fields_makes_none_inside_a_text_acceptable(text: str) -> None:
    """Payloads of two ``data:`` lines hold a LF where JSON allows one; a raw LF inside a string is no JSON."""
    events = [event(one(count, glue="\n")) for count in (1, 2, 3, 4, 5, 6)]
    assert every_cut(events).outputs[0].text() == "aaaaaa"
    broken = every_cut([*events, event(one(7, glue="\n", text=text))])
    assert isinstance(broken.error, PayloadError)
    assert len(broken.outputs[0].token_ids) == 6


def test_a_comma_in_an_empty_list_is_refused() -> None:
    meta = '{"id":"r","finish_reason":null,"prompt_tokens":3,"completion_tokens":%d}'
    bodies = [
        f'{{"text":"{text}","output_ids":[{ids}],"meta_info":{meta % count}}}'
        for text, ids, count in (("", " ", 0), ("", " ", 0), ("a", " ,100,101", 2))
    ]
    folded = every_cut(list(map(event, bodies)))
    assert isinstance(folded.error, PayloadError)
    assert not folded.outputs[0].token_ids


@pytest.mark.parametrize("tail", [",", ", ", ",]", " ", ",,5", "5"])
def test_a_list_that_goes_on_with_nothing_is_refused(tail: str) -> None:
    def grown(count: int, ids: str) -> bytes:
        rows = ",".join(f"[-0.5,{100 + at},null]" for at in range(1, count + 1))
        return event(payload(count, text="a" * count, ids=f"[{ids}]", rows=f"[{rows}]"))

    known = ["101", "101,102", "101,102,103", "101,102,103,104"]
    events = [grown(at + 1, ids) for at, ids in enumerate(known)]
    assert list(every_cut(events).outputs[0].token_ids) == [101, 102, 103, 104]
    folded = every_cut([*events, grown(4, known[3] + tail)])
    if tail == " ":
        assert folded.updates[-1].token_ids == ()
    else:
        assert isinstance(folded.error, (PayloadError, ProtocolError))
    assert list(folded.outputs[0].token_ids) == [101, 102, 103, 104]


def test_null_in_the_place_of_rows_is_the_same_whichever_chunk_it_comes_in() -> None:
    meta = '{"id":"r","finish_reason":null,"prompt_tokens":3,"output_token_logprobs":null,"completion_tokens":%d}'
    events = [
        event(f'{{"text":"ab","output_ids":[{2 * at},{2 * at + 1}],"meta_info":{meta % (2 * at + 2)}}}')
        for at in range(6)
    ]
    folded = every_cut(events)
    assert [("output_token_logprobs" in update.meta_info) for update in folded.updates] == [True] * 6
    for count in range(1, 7):
        output = every_cut(events[:count]).outputs[0]
        assert "output_token_logprobs" not in output.meta_info
        assert output.native_response()["output_ids"] == list(range(2 * count))


@pytest.mark.parametrize("number", ["007", "+7", "7.0", "1e1", "-7", " 7 ", '"7"', "null", "true"])
def test_a_count_is_written_as_json_writes_one(number: str) -> None:
    events = [event(one(count)) for count in (1, 2, 3, 4, 5, 6)]
    odd = one(7).replace('"completion_tokens":7', f'"completion_tokens":{number}')
    folded = every_cut([*events, event(odd)])
    assert len(folded.outputs[0].token_ids) == (7 if number in (" 7 ", "null") else 6)


@pytest.mark.parametrize("stamp", ["1e400", "01", "NaN", "-", "1.", ".5", "+1", '"a', "1 2"])
def test_a_time_stamp_that_changes_must_still_be_json(stamp: str) -> None:
    def stamped(count: int, value: str) -> bytes:
        return event(one(count).replace('"prompt_tokens"', f'"ts":{value},"prompt_tokens"'))

    events = [stamped(count, f"{1700000000 + count / 8}") for count in range(1, 8)]
    folded = every_cut(events)
    assert folded.outputs[0].meta_info["ts"] == 1700000000 + 7 / 8
    assert [update.meta_info["ts"] for update in folded.updates] == [1700000000 + at / 8 for at in range(1, 8)]
    broken = every_cut([*events, stamped(8, stamp)])
    assert isinstance(broken.error, PayloadError)
    assert len(broken.outputs[0].token_ids) == 7


def two(count: int, *, meta: str = "", glue: str = "") -> str:
    """The chunk of the two tokens up to ``count``; ``glue``: white space inside its lists."""
    rows = f"[[-0.5,{99 + count},null],{glue}[-0.25,{100 + count},null]]"
    data = payload(count, text="ab", ids=f"[{99 + count},{100 + count}]", rows=rows)
    return data.replace('"prompt_tokens"', f'{meta}"prompt_tokens"')


def test_text_that_is_no_utf_8_is_refused() -> None:
    events = [event(one(count)) for count in (1, 2, 3, 4)]
    folded = every_cut([*events, event(one(5, text="@")).replace(b"@", b"\xff")])
    assert isinstance(folded.error, PayloadError)
    assert len(folded.outputs[0].token_ids) == 4


def test_a_line_end_between_rows_is_white_space() -> None:
    folded = every_cut([event(two(count, glue="\n" if count == 8 else "")) for count in (2, 4, 6, 8, 10)])
    assert list(folded.outputs[0].token_ids) == list(range(101, 111))


def test_a_line_end_in_a_list_beside_the_tokens_is_white_space() -> None:
    def event_of(count: int) -> bytes:
        return event(two(count, meta=f'"mine":[{count},{chr(10) if count == 8 else ""}0],'))

    folded = every_cut(list(map(event_of, (2, 4, 6, 8, 10))))
    assert folded.outputs[0].native_response()["meta_info"]["mine"] == [2, 0, 4, 0, 6, 0, 8, 0, 10, 0]


def test_of_more_lists_than_any_server_has_nothing_is_learned() -> None:
    lists = "".join(f'"list{at}":[1,2],' for at in range(70))
    folded = every_cut([event(two(count, meta=lists)) for count in (2, 4, 6, 8)])
    assert len(folded.outputs[0].native_response()["meta_info"]["list69"]) == 8


def test_deltas_of_rows_and_fewer_ids_are_refused() -> None:
    """A server that sends rows as deltas joins both lists or neither."""
    odd = two(6).replace('"output_ids":[105,106]', '"output_ids":[106]')
    folded = every_cut([event(two(2)), event(two(4)), event(odd)])
    assert isinstance(folded.error, ProtocolError)
    assert len(folded.outputs[0].token_ids) == 4


def test_rows_as_deltas_beside_ids_as_snapshots_are_refused() -> None:
    """No version sends that; here the ids were found to be snapshots before the first row came."""
    meta = '{"id":"r","finish_reason":null,"prompt_tokens":3,"completion_tokens":%d}'
    bare = [
        event(f'{{"text":"{"a" * n}","output_ids":{list(range(101, 101 + n))},"meta_info":{meta % n}}}') for n in (1, 2)
    ]
    rows = ",".join(f"[-0.5,{at},null]" for at in (101, 102, 103))
    whole = event(payload(3, text="aaa", ids="[101,102,103]", rows=f"[{rows}]"))
    folded = every_cut([*bare, whole, event(payload(4, text="aaaa", ids="[]", rows="[[-0.5,104,null]]"))])
    assert isinstance(folded.error, ProtocolError)
    assert "output_token_logprobs is incremental beside output_ids, which is cumulative" in str(folded.error)
    assert list(folded.outputs[0].token_ids) == [101, 102, 103]
