"""Inputs on which the two paths differed, found by a campaign or by reading: one test each, in every cut."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from ssefold import EventTooLargeError, GenerateDecoder, PayloadError, ProtocolError, ServerError, StreamError, Update
from tests.core.by_hand import Folded, each_byte, fold


def chunk(count: int, **given: Any) -> dict[str, Any]:
    """The chunk of one token in an incremental stream; ``meta_info`` is merged, None takes a key away."""
    payload: dict[str, Any] = {"text": "a", "output_ids": [count]}
    meta: dict[str, Any] = {"id": "r", "finish_reason": None, "prompt_tokens": 3, "completion_tokens": count}
    meta |= given.pop("meta", {})
    payload |= {"meta_info": meta} | given
    return {name: value for name, value in payload.items() if name not in given or value is not None}


def rows(*ids: int, width: int = 3) -> list[list[Any]]:
    return [[-0.5, token_id, None][:width] for token_id in ids]


def event(payload: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def every_cut(events: list[bytes], **options: Any) -> Folded:
    """Fold on both paths, by event, whole and byte by byte."""
    folded = fold(events, **options)
    for reads in ([b"".join(events)], each_byte(b"".join(events))):
        assert fold(reads, **options).told == folded.told
    return folded


def test_done_is_seen_in_the_read_that_ends_a_refused_event() -> None:
    *events, last = [event(chunk(count)) for count in (1, 2, 3, 4, 5)]
    broken = last.replace(b'"completion_tokens":5', b'"completion_tokens":7') + b"data: [DONE]\n\n"
    for cut in range(7, len(broken) - 1):
        folded = fold([*events, broken[:cut], broken[cut:]])
        assert isinstance(folded.error, ProtocolError)
        assert folded.decoder.done


def test_a_counter_that_falls_to_no_tokens_is_refused() -> None:
    """Text alone, as 0.4.x sends it: 0 tokens were what had been counted in ids."""
    events = [event(chunk(count, text="abcd"[:count], output_ids=None)) for count in (1, 2, 3)]
    folded = every_cut([*events, event(chunk(0, text="abcd", output_ids=None))])
    assert isinstance(folded.error, ProtocolError)
    assert "fell from 3 to 0" in str(folded.error)


def test_counted_text_that_was_taken_for_deltas_is_refused() -> None:
    texts = [("a", 1), ("b", 1), ("c", 1), ("d", 2)]
    events = [event(chunk(count, text=text, output_ids=None)) for text, count in texts]
    assert isinstance(every_cut(events, mode="incremental").error, ProtocolError)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_delta_of_ids_covers_all_tokens_that_were_not_counted(at_once: int) -> None:
    """Rows had brought tokens before their counter did (batches of 0.5.10): fewer ids than it then counts are lost."""

    def sent(counted: int, ids: list[int], known: list[int]) -> bytes:
        meta = {
            "dp_rank": 0,
            "output_token_logprobs": rows(*known),
            "output_token_logprobs_length": counted,
            "completion_tokens": counted,
        }
        return event(chunk(counted, text="a" * len(ids), output_ids=ids, meta=meta, index=0))

    events = [sent(1, [1], [1]), sent(2, [2], [1, 2]), sent(3, [3], [1, 2, 3]), sent(4, [4], [1, 2, 3, 4, 5])]
    ids = [6, 7][:at_once]
    folded = every_cut([*events, sent(5 + at_once, ids, [1, 2, 3, 4, 5, *ids])])
    assert isinstance(folded.error, ProtocolError)
    assert "entries in a chunk of deltas" in str(folded.error)
    assert every_cut([*events, sent(6, [5, 6], [1, 2, 3, 4, 5, 6])]).outputs[0].token_ids[-1] == 6


def test_a_delta_of_a_list_beside_lists_that_have_run_ahead() -> None:
    def sent(count: int, ids: int, new: int) -> bytes:
        known = list(range(1, ids + 1))
        meta = {
            "output_token_logprobs": rows(*known),
            "output_token_logprobs_length": count,
            "completion_tokens": count,
            "output_top_logprobs": [[[-0.5, at, None]] for at in known[ids - new :]],
        }
        return event(chunk(count, text="a" * count, output_ids=known, meta=meta, index=0))

    every_cut([sent(1, 1, 1), sent(2, 2, 1), sent(3, 3, 1), sent(4, 4, 1), sent(5, 6, 2), sent(7, 7, 1)])


def test_the_width_of_rows_is_that_of_the_last_ones() -> None:
    """The gRPC gateway writes rows of two; the width shows in ``native_response``."""
    ids = [1]
    events: list[bytes] = []
    for count in range(1, 9):
        ids = [*ids, count + 1] if events else ids
        meta = {"output_token_logprobs": rows(*ids[-1:], width=2 if count < 5 else 3), "completion_tokens": count}
        events.append(event(chunk(count, output_ids=None, meta=meta)))
    folded = every_cut(events)
    assert [len(row) for row in folded.outputs[0].native_response()["meta_info"]["output_token_logprobs"]] == [3] * 8


@pytest.mark.parametrize("value", [None, False])
def test_a_counter_of_beams_counts_nothing(value: object) -> None:
    """It is the sum over all beams; a snapshot keeps what was counted."""
    kept: list[object] = []
    for fast_path in (True, False):
        decoder = GenerateDecoder(fast_path=fast_path)
        decoder.feed(event(chunk(1)))
        for count in (2, 3, 4, 5):
            beams = {"beam_results": value}
            decoder.feed(event(chunk(count, text="a" * count, output_ids=list(range(1, count + 1)), meta=beams)))
        kept.append(decoder.snapshots())
    assert kept[0] == kept[1]


# ---- an output that its caller changes ------------------------------------------------------------------------------


def text_alone_grows(count: int, finish: Any = None) -> dict[str, Any]:
    """Ids are deltas and text is not, as in 0.5.1 to 0.5.9."""
    return chunk(count, text="abcdefgh"[:count], meta={"weight_version": "d", "finish_reason": finish})


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_chunk_added_by_hand_is_not_folded_again(fast_path: bool) -> None:
    decoder = GenerateDecoder(fast_path=fast_path)
    for count in (1, 2, 3, 4):
        decoder.feed(event(text_alone_grows(count)))
    decoder.outputs[0].add(text_alone_grows(5))
    (update,) = decoder.feed(event(text_alone_grows(6)))
    assert (update.text, update.token_ids) == ("f", (6,))
    assert decoder.outputs[0].text() == "abcdef"


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("failed", [True, False])
def test_an_output_ended_by_hand_takes_nothing_more(fast_path: bool, failed: bool) -> None:
    decoder = GenerateDecoder(fast_path=fast_path)
    for count in (1, 2, 3, 4):
        decoder.feed(event(text_alone_grows(count)))
    output = decoder.outputs[0]
    if failed:
        output.fail(ServerError("m", message="m"))
        assert decoder.feed(event(text_alone_grows(5))) == []
    else:
        output.add(text_alone_grows(5, {"type": "stop"}))
        with pytest.raises(ProtocolError, match="a later chunk goes on"):
            decoder.feed(event(text_alone_grows(6)))
    assert len(output.token_ids) == (4 if failed else 5)


# ---- an event that is followed --------------------------------------------------------------------------------------


def cumulative(count: int, text: str = "abcdefgh") -> bytes:
    return event(chunk(count, text=text[:count], output_ids=list(range(1, count + 1))))


def test_an_update_comes_with_the_read_that_ends_its_event() -> None:
    """The piece after the text was taken to be the rest of the read, of which it has the length."""
    for rest in ('"', '","y":1234567', '","y":12345678', '","y":123456'):
        last = b'data: {"text":"abcd%s}\n\n' % rest.encode()
        for fast_path in (True, False):
            decoder = GenerateDecoder(fast_path=fast_path)
            for count in (1, 2, 3, 4):
                assert len(decoder.feed(cumulative(count))) == 1
            assert len(decoder.feed(last)) == 1


def test_lists_that_end_in_odd_places_take_no_time() -> None:
    """Each bracket in a list was tried as its end, and then in the next list: nine lists took for ever."""

    def sent(count: int, text: str, filler: str) -> bytes:
        lists = {f"l{at}": [[[0]] * 100] for at in range(9)}
        return event(chunk(count, text=text, meta=lists | {"z": filler}))

    events = [sent(count, "a", "y" * 9_000) for count in (1, 2, 3, 4)]
    events.append(sent(5, "a" * 10_000, "y").replace(b',"z":"y"', b""))
    folded = every_cut(events)
    assert folded.outputs[0].token_ids[-1] == 5


@pytest.mark.parametrize("size", [1, 2, 7])
def test_an_event_that_is_followed_in_tiny_reads_takes_its_bytes_in_memory(size: int) -> None:
    text = "0123456789" * 40_000
    first = [event(chunk(count, text=text + "a" * count, output_ids=list(range(1, count + 1)))) for count in (1, 2, 3)]
    decoder = GenerateDecoder()
    for one in first:
        decoder.feed(one)
    last = event(chunk(4, text=text + "aaaa", output_ids=[1, 2, 3, 4]))
    half = 300_000
    tracemalloc.start()
    try:
        decoder.feed(last[:100])
        at = 100
        while at < half:
            assert decoder.feed(last[at : at + size]) == []
            at += size
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * half
    (update,) = decoder.feed(last[at:])
    assert update.text == "a"


def test_a_large_read_is_not_kept_for_the_few_bytes_at_its_end() -> None:
    text = "x" * 1000
    same = event(chunk(4, text=text, output_ids=[1, 2, 3, 4]))
    decoder = GenerateDecoder()
    for count in (1, 2, 3, 4):
        decoder.feed(event(chunk(count, text=text, output_ids=list(range(1, count + 1)))))
    tracemalloc.start()
    try:
        decoder.feed(bytes(bytearray(same * 500 + same[:40])))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100 * len(same)


@pytest.mark.parametrize("mutable", [bytearray, lambda read: memoryview(bytearray(read))])
@pytest.mark.parametrize("size", [11, 64, 300])
def test_a_buffer_may_be_used_again_while_an_event_is_followed(mutable: Any, size: int) -> None:
    texts = ["x" * 200 + "abcdefgh"[:count] for count in range(1, 9)]
    body = b"".join(
        event(chunk(count, text=texts[count - 1], output_ids=list(range(1, count + 1)))) for count in range(1, 9)
    )
    decoder = GenerateDecoder()
    for at in range(0, len(body), size):
        buffer = mutable(body[at : at + size])
        decoder.feed(buffer)
        buffer[:] = b"\xff" * len(buffer)
    assert decoder.outputs[0].text() == texts[-1]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_largest_event_is_as_large_on_both_paths(over: int) -> None:
    events = [event(chunk(count, text="x" * 50 * count, output_ids=list(range(1, count + 1)))) for count in range(1, 9)]
    most = len(events[-1]) - len(b"data: \n\n") - over
    results = set()
    for reads in (
        events,
        each_byte(b"".join(events)),
        [b"".join(events)],
        [*events[:-1], events[-1][:200], events[-1][200:]],
    ):
        for fast_path in (True, False):
            folded = fold(reads, max_event_size=most, fast_path=fast_path)
            results.add((type(folded.error), len(folded.outputs[0].token_ids)))
    assert len(results) == 1


@pytest.mark.parametrize("left", [1, 5, 6, 7, 60, -3, -2, -1])
@pytest.mark.parametrize("fast_path", [True, False])
def test_a_body_may_end_while_an_event_is_followed(left: int, fast_path: bool) -> None:
    events = [
        event(chunk(count, text="abcdefgh"[:count], output_ids=list(range(1, count + 1)))) for count in (1, 2, 3, 4)
    ]
    decoder = GenerateDecoder(fast_path=fast_path)
    for one in events[:3]:
        decoder.feed(one)
    updates: list[Update] = decoder.feed(events[3][:left])
    snapshot = decoder.outputs[0].snapshot()
    with pytest.raises(StreamError, match="without a terminal finish_reason"):
        decoder.close()
    assert not updates
    assert decoder.cut
    assert decoder.snapshots() == {0: snapshot}


# ---- payloads that are no JSON --------------------------------------------------------------------------------------


def test_broken_text_goes_no_way() -> None:
    events = [event(chunk(count)) for count in (1, 2, 3, 4)]
    for text in (b"\xff", b"\xc3", b"\\ud800", b"\\x", b'\\"\\', b"\x01"):
        folded = every_cut([*events, events[3].replace(b'"a"', b'"%s"' % text).replace(b"4", b"5")])
        assert isinstance(folded.error, PayloadError)


def test_an_event_that_grows_too_large_is_refused_in_the_same_read() -> None:
    """Its text goes on by so much that ids which are known stand beyond the bound; two bytes more were kept."""

    def sent(text: str, count: int) -> bytes:
        return event(chunk(count, text=text, output_ids=list(range(1, count + 1))))

    known = [sent("a" * 10, count) for count in (200, 201, 202)]
    last = sent("a" * 400, 203)
    most = 500
    for cut in range(most, most + 20):
        refused: list[int] = []
        for fast_path in (True, False):
            decoder = GenerateDecoder(fast_path=fast_path, max_event_size=len(known[-1]))
            for one in known:
                decoder.feed(one)
            reads = [last[: len(known[-1]) - most + cut], last[len(known[-1]) - most + cut :]]
            for at, read in enumerate(reads):
                try:
                    decoder.feed(read)
                except EventTooLargeError:
                    refused.append(at)
        assert len(refused) in (2, 4)
        assert refused[: len(refused) // 2] == refused[len(refused) // 2 :]
