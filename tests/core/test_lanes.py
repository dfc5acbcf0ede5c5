"""Each lane on its own: what is a delta, what a snapshot, and what is done when that shows late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ssefold import Accumulator, ProtocolError, Update
from ssefold.transports.testing import CUMULATIVE, INCREMENTAL, PROFILES, encode
from tests.core.by_hand import Sample, fold
from tests.core.corpus import plain, rich, scored
from tests.core.test_errors import STOP, chunk, rowed


def add_all(output: Accumulator, *chunks: dict[str, Any]) -> list[Update]:
    """Fold, with a sample kept by hand beside."""
    sample = Sample()
    updates: list[Update] = []
    for one in chunks:
        updates.append(output.add(one))
        sample.apply(updates[-1])
        sample.agrees_with(output)
    return updates


# ---- what is found --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "text", "ids", "rows"),
    [  # wire.md b.1, the version matrix
        ("0.4.10", "cumulative", None, "cumulative"),
        ("0.5.3", "cumulative", "incremental", "cumulative"),
        ("0.5.5", "cumulative", "incremental", "cumulative"),
        ("0.5.9", "cumulative", "cumulative", "cumulative"),
        ("0.5.9-incremental", "cumulative", "incremental", "cumulative"),
        ("0.5.10", "cumulative", "cumulative", "cumulative"),
        ("0.5.10-incremental", "incremental", "incremental", "cumulative"),
        ("0.5.11-incremental", "incremental", "incremental", "incremental"),
        ("0.5.23", "cumulative", "cumulative", "cumulative"),
        ("0.5.23-incremental", "incremental", "incremental", "incremental"),
        ("0.5.23-tokens_only", None, "cumulative", "cumulative"),
        ("0.5.23-incremental-tokens_only", None, "incremental", "incremental"),
        ("grpc-gateway-pd", "cumulative", "incremental", "cumulative"),
        ("rust", "cumulative", "cumulative", "cumulative"),
        ("rust-incremental", "incremental", "incremental", "incremental"),
    ],
)
def test_lanes_by_version(profile: str, text: str | None, ids: str | None, rows: str | None) -> None:
    output = fold(encode(scored(12), PROFILES[profile]).events).outputs[0]
    assert dict(output.lanes) == {"text": text, "output_ids": ids, "logprobs": rows}
    assert fold(encode(plain(12), PROFILES[profile]).events).outputs[0].lanes["logprobs"] is None


def test_lists_beside_the_tokens_are_lanes_by_name() -> None:
    for profile, lane in ((CUMULATIVE, "cumulative"), (INCREMENTAL, "incremental")):
        lanes = fold(encode(rich(6), profile).events).outputs[0].lanes
        for name in ("output_top_logprobs", "output_token_ids_logprobs", "output_token_sampling_mask", "confidence"):
            assert lanes[name] == lane


# ---- lists without counters ------------------------------------------------------------------------------------------


def _uncounted(*ids: int, rows: Sequence[int] | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {} if rows is None else {"output_token_logprobs": [[-0.5, one, None] for one in rows]}
    return {"output_ids": list(ids), "meta_info": meta} if ids else {"meta_info": meta}


@pytest.mark.parametrize(
    ("chunks", "ids", "lanes"),
    [
        ((_uncounted(5), _uncounted(5, 6)), [5, 6], ("cumulative", None)),
        ((_uncounted(5), _uncounted(6)), [5, 6], ("incremental", None)),
        ((_uncounted(5, 6), _uncounted(7), _uncounted(5, 6, 7)), [5, 6, 7, 5, 6, 7], ("incremental", None)),
        ((_uncounted(rows=[5]), _uncounted(rows=[5, 6])), [5, 6], (None, "cumulative")),
        ((_uncounted(rows=[5]), _uncounted(rows=[6, 5])), [5, 6, 5], (None, "incremental")),
        ((_uncounted(rows=[5, 6]), _uncounted(rows=[7])), [5, 6, 7], (None, "incremental")),
        ((_uncounted(rows=[5, 6]), _uncounted(rows=[])), [5, 6], (None, None)),
    ],
)
def test_without_a_counter_the_prefix_tells(
    chunks: Sequence[dict[str, Any]], ids: list[int], lanes: tuple[str | None, str | None]
) -> None:
    output = Accumulator()
    add_all(output, *chunks)
    assert list(output.token_ids) == ids
    assert (output.lanes["output_ids"], output.lanes["logprobs"]) == lanes


@pytest.mark.parametrize("mode", ["cumulative", "incremental"])
@pytest.mark.parametrize("chunks", [(_uncounted(5),) * 2, (_uncounted(rows=[5]),) * 2])
def test_without_a_counter_the_mode_tells_before_the_prefix(chunks: Sequence[dict[str, Any]], mode: Any) -> None:
    output = Accumulator(mode)
    add_all(output, *chunks)
    assert list(output.token_ids) == ([5] if mode == "cumulative" else [5, 5])


def test_a_snapshot_without_a_counter_that_has_shrunk() -> None:
    for chunks in ((_uncounted(5), _uncounted(5, 6), _uncounted(5)),
                   (_uncounted(rows=[5]), _uncounted(rows=[5, 6]), _uncounted(rows=[5]))):  # fmt: skip
        output = Accumulator()
        add_all(output, *chunks[:-1])
        with pytest.raises(ProtocolError, match="has shrunk from 2 to 1 entries"):
            output.add(chunks[-1])


# ---- top-p rows ------------------------------------------------------------------------------------------------------


def _top_p(*rows: Sequence[int]) -> dict[str, Any]:
    ids = [token_id for row in rows for token_id in row]
    ends = [sum(map(len, rows[:at])) for at in range(len(rows) + 1)]
    return {"top_p_token_ids": ids, "top_p_token_offsets": ends}


def test_top_p_rows_come_with_their_tokens_or_for_all_of_them_at_the_end() -> None:
    each, late = Accumulator(), Accumulator()
    with_each = add_all(
        each, chunk(5, **_top_p([5, 9])), chunk(6, count=2, **_top_p([6])), chunk(count=2, finish=STOP, **_top_p())
    )
    assert [update.replace for update in with_each] == [False, False, False]
    at_the_end = add_all(late, chunk(5, text="a"), chunk(6, count=2, text="b", finish=STOP, **_top_p([5, 9], [6])))
    assert (at_the_end[1].replace, at_the_end[1].token_ids, at_the_end[1].text) == (True, (5, 6), "ab")
    assert "output_token_logprobs" not in at_the_end[1].meta_info
    assert each.top_p == late.top_p == at_the_end[1].top_p
    assert each.top_p is not None
    assert [list(each.top_p.kept(at)) for at in range(2)] == [[5, 9], [6]]


def test_an_update_for_all_tokens_carries_every_list_that_is_one_per_token() -> None:
    output = Accumulator()
    lists: dict[str, Any] = {"mine": [1], "size": [7, 7]}
    updates = add_all(
        output,
        rowed(5, output_top_logprobs=[[1]], **lists),
        rowed(5, 6, output_top_logprobs=[[1], [2]], mine=[1, 2], size=[7, 7], finish_reason=STOP, **_top_p([5], [6])),
    )
    assert updates[1].replace
    meta = updates[1].meta_info
    assert meta["output_top_logprobs"] == [[1], [2]]
    assert meta["mine"] == [1, 2]
    assert meta["size"] == [7, 7]  # a value of its own, as it came
    assert meta["output_token_logprobs"] == [[-0.5, 5, None], [-0.5, 6, None]]
    assert set(output.lanes) == {"text", "output_ids", "logprobs", "output_top_logprobs", "mine"}


# ---- rows that are late or missing ----------------------------------------------------------------------------------


def test_rows_that_catch_up_replace_what_was_given() -> None:
    """Up to 0.5.18 logprob keys are missing in some chunks (bug report 22): missing is not empty."""
    output = Accumulator()
    without = chunk(5, 6)
    updates = add_all(output, rowed(5), without, rowed(5, 6, 7), rowed(5, 6, 7, 8, finish_reason=STOP))
    assert [update.replace for update in updates] == [False, False, True, False]
    assert updates[1].logprobs == ()
    assert (updates[2].start, updates[2].token_ids, updates[2].logprobs) == (0, (5, 6, 7), (-0.5,) * 3)
    assert updates[2].meta_info["output_token_logprobs"] == [[-0.5, 5, None], [-0.5, 6, None], [-0.5, 7, None]]
    assert list(output.logprobs) == [-0.5] * 4


def test_rows_that_begin_late() -> None:
    output = Accumulator()
    updates = add_all(output, chunk(5), chunk(5, 6), rowed(5, 6, 7, finish_reason=STOP))
    assert [update.replace for update in updates] == [False, False, True]
    assert list(output.logprobs) == [-0.5] * 3


def test_rows_that_were_lost_in_an_incremental_stream_are_missed() -> None:
    output = Accumulator()
    add_all(output, rowed(5), rowed(6, count=2), chunk(7, count=3))
    with pytest.raises(ProtocolError, match=r"1 entries, 2 were known and the counter says 4"):
        output.add(rowed(8, count=4))


def test_rows_for_other_ids_than_were_given() -> None:
    output = Accumulator()
    add_all(output, chunk(5), chunk(5, 6))
    with pytest.raises(ProtocolError, match="are for ids"):
        output.add(rowed(5, 9, 7))


def test_chunks_without_anything_new() -> None:
    """A held-back character: every step is sent with stream_interval 1 (b.1)."""
    output = Accumulator()
    updates = add_all(
        output, rowed(5), rowed(count=1), rowed(6, count=2), chunk(count=2), rowed(count=2, finish_reason=STOP)
    )
    assert [update.token_ids for update in updates] == [(5,), (), (6,), (), ()]
    assert output.lanes["output_ids"] == "incremental"


# ---- text -----------------------------------------------------------------------------------------------------------


def _texts(*texts: str | None, **meta: Any) -> list[dict[str, Any]]:
    """Chunks without counters or ids, so that nothing but the texts tells."""
    return [{"text": text, "meta_info": {"id": "r", **meta}} for text in texts]


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (("a", "ab", "abc"), "abc"),
        (("a", "b", "c"), "abc"),
        (("a", "a"), "a"),
        (("a", "ab", "x"), "aabx"),
        (("a", "ab", "abc", "x"), "aababcx"),
        (("a", "aa", "aaa", "b", "aaa"), "aaaaaabaaa"),
        (("", "a", "", "b"), "ab"),
        (("", "", ""), ""),
    ],
)
def test_text_alone_is_taken_by_the_prefix_test_and_taken_back(texts: Sequence[str], whole: str) -> None:
    output = Accumulator()
    updates = add_all(output, *_texts(*texts))
    assert output.text() == whole
    if whole.startswith("aab"):
        assert any(update.text_start < len("aabx") - 1 for update in updates[2:])


@pytest.mark.parametrize(("mode", "whole"), [("cumulative", "a"), ("incremental", "aa")])
def test_a_given_mode_decides_where_nothing_else_does(mode: Any, whole: str) -> None:
    output = Accumulator(mode)
    add_all(output, *_texts("a", "a"))
    assert output.text() == whole


def test_a_snapshot_may_rewrite_its_tail() -> None:
    """A stop string is cut off, a replacement character is resolved: the update starts where the text differs."""
    output = Accumulator()
    chunks = [
        chunk(*range(5, 6 + at), text=text)
        for at, text in enumerate(("Hi", "Hi \ufffd", "Hi \u6587\n\nQ", "Hi \u6587"))
    ]
    updates = add_all(output, *chunks)
    assert [(update.text_start, update.text) for update in updates] == [
        (0, "Hi"), (2, " \ufffd"), (3, "\u6587\n\nQ"), (4, "")
    ]  # fmt: skip
    assert output.text() == "Hi \u6587"


@pytest.mark.parametrize(
    "chunks",
    [
        # by the ids
        (chunk(5, text="a\ufffd"), chunk(5, 6, text="a\xe9b")),
        # by the rows
        (
            {"text": "a\ufffd", "meta_info": rowed(5)["meta_info"]},
            {"text": "a\xe9b", "meta_info": rowed(5, 6)["meta_info"]},
        ),
        # by the counter alone
        *(
            tuple({"text": text, "meta_info": {"id": "r", "completion_tokens": at}} for at, text in enumerate(texts, 1))
            for texts in (("a\ufffd", "a\xe9b"), ("a\ufffd", "a\xe9", "a\xe9b"))
        ),
    ],
)
def test_a_snapshot_may_rewrite_its_tail_at_once(chunks: Sequence[dict[str, Any]]) -> None:
    """The second chunk already does not go on from the first, and is no delta all the same."""
    output = Accumulator()
    add_all(output, *chunks)
    assert output.text() == "a\xe9b"
    assert output.lanes["text"] == "cumulative"


def _old(text: str, *ids: int, count: int, rows: int = 0) -> dict[str, Any]:
    """A chunk of 0.5.1 to 0.5.5: ids are deltas, rows and text are snapshots."""
    meta: dict[str, Any] = {"id": "r", "weight_version": "v", "completion_tokens": count}
    if rows:
        meta["output_token_logprobs"] = [[-0.5, 5 + at, None] for at in range(rows)]
    return {"text": text, "output_ids": list(ids), "meta_info": meta}


@pytest.mark.parametrize(
    ("mode", "chunks"),
    [
        ("auto", (_old("a\ufffd", 5, count=1, rows=1), _old("a\xe9b", 6, count=2, rows=2))),
        ("cumulative", (_old("a\ufffd", 5, count=1), _old("a\xe9b", 6, count=2))),
        ("cumulative", ({"text": "a\ufffd"}, {"text": "a\xe9b"})),
    ],
)
def test_a_snapshot_may_rewrite_its_tail_beside_deltas(mode: Any, chunks: Sequence[dict[str, Any]]) -> None:
    output = Accumulator(mode)
    add_all(output, *chunks)
    assert output.text() == "a\xe9b"


def test_text_is_decoded_where_the_server_sent_none() -> None:
    calls: list[list[int]] = []

    def decode(ids: Sequence[int]) -> str:
        calls.append(list(ids))
        return "".join(map(chr, ids))

    tokens_only = fold(encode(plain(4), PROFILES["0.5.23-tokens_only"]).events).outputs[0]
    assert tokens_only.text() == ""
    assert "text" not in tokens_only.native_response()
    assert tokens_only.text(decode) == "efgh"
    assert tokens_only.native_response(decode)["text"] == "efgh"
    assert tokens_only.snapshot().text(decode) == "efgh"
    assert calls == [[101, 102, 103, 104]] * 3
    with_text = fold(encode(plain(4), CUMULATIVE).events).outputs[0]
    assert with_text.text(decode) == with_text.text() == 'Hello "'
    assert Accumulator().text(decode) == ""
    assert len(calls) == 3


@pytest.mark.parametrize("text", [None, "absent"])
def test_null_and_no_text_are_the_same(text: str | None) -> None:
    output = Accumulator()
    for one in (chunk(5), chunk(6, count=2), chunk(7, count=3, finish=STOP)):
        one["text"] = text
        if text is not None:
            del one["text"]
        assert output.add(one).text is None
    assert output.text(lambda ids: f"{len(ids)} tokens") == "3 tokens"


# ---- meta_info ------------------------------------------------------------------------------------------------------


def test_meta_info_is_merged_and_null_does_not_erase_what_is_whole() -> None:
    output = Accumulator()
    prompt = [[None, 1, None]]
    first = chunk(5, input_token_logprobs=prompt, hidden_states=[[0.5]], routed_experts=None, custom="a", other=1)
    second = chunk(6, count=2, input_token_logprobs=None, hidden_states=None, routed_experts="AAAAAA==", custom=None)
    third = chunk(7, count=3, finish=STOP, routed_experts=None)
    updates = add_all(output, first, second, third)
    meta = output.meta_info
    assert meta["input_token_logprobs"] == prompt
    assert meta["hidden_states"] == [[0.5]]
    assert meta["routed_experts"] == "AAAAAA=="
    assert meta["custom"] is None
    assert meta["other"] == 1
    assert output.routed_experts is not None
    assert output.routed_experts.values.tolist() == [0]
    assert [update.routed_experts is None for update in updates] == [True, False, True]
    assert "output_token_logprobs" not in meta
    with pytest.raises(TypeError):
        meta["custom"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        updates[0].meta_info["hidden_states"].append(1)


@pytest.mark.parametrize(
    "values",
    [
        {"input_token_logprobs": [7]},
        {"input_top_logprobs": [7]},
        {"input_token_ids_logprobs": [7]},
        {"hidden_states": [7]},
        {"routed_experts": [7]},
        {"indexer_topk": [7]},
        {"top_p_token_ids": [7], "top_p_token_offsets": [0, 1]},
        {"top_p_kept_token_ids": [7], "top_p_kept_token_offsets": [0, 1]},
    ],
)
def test_a_value_that_comes_once_is_kept(values: dict[str, Any]) -> None:
    """0.5.7-0.5.9 write null before it, and a server may as well write it behind."""
    output = Accumulator()
    output.add(chunk(5, **values))
    last = chunk(6, count=2)
    last["meta_info"] |= dict.fromkeys(values)
    output.add(last)
    assert {name: output.meta_info[name] for name in values} == values
    assert (output.top_p is not None) is any(name.startswith("top_p") for name in values)


def test_keys_at_the_top_are_kept() -> None:
    output = Accumulator()
    for one in (chunk(5), chunk(6, count=2, finish=STOP)):
        output.add({**one, "prompt_token_ids": [1, 2, 3], "index": 0, "trace": None})
    response = output.native_response()
    assert response["prompt_token_ids"] == [1, 2, 3]
    assert response["trace"] is None
    assert "index" not in response
    response["prompt_token_ids"].append(4)
    assert output.native_response()["prompt_token_ids"] == [1, 2, 3]


def test_a_scored_prompt_gives_no_token() -> None:
    """max_new_tokens=0: one logprob row for a token that is not part of the answer (wire facts 6)."""
    for count in (0, None):
        probe = rowed(9, count=1, input_token_logprobs=[[None, 1, None], [-0.5, 2, None]])
        probe["output_ids"] = []
        probe["meta_info"] |= {"completion_tokens": 0, "finish_reason": {"type": "length", "length": 0}}
        if count is None:
            del probe["meta_info"]["output_token_logprobs_length"]
        output = Accumulator()
        update = output.add(probe)
        assert (update.token_ids, update.logprobs, update.text) == ((), (), "")
        assert not output.token_ids
        assert not output.logprobs
        assert output.native_response() == probe
    # With a token it is one.
    assert list(fold(encode(scored(1), CUMULATIVE).events).outputs[0].token_ids) == [101]
