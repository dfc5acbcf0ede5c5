"""What comes out right although slime's own function breaks on it, or fails here with the real cause."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import PayloadError, ProtocolError, ReplayError, ServerError
from ssefold.adapters.slime import SGLangStreamAccumulator

from ..fakes import STOP, b64, bytes_response, chunk, lines_response, pairs_of, stream_of
from .runs import ABSENT, Run, state_of

STREAMS = Path(__file__).parents[2] / "data" / "streams"


def resumable(slime: Any, **changes: Any) -> Any:
    given = {
        "prompt": "p",
        "tokens": [1, 2, 5, 6],
        "response": "five",
        "response_length": 2,
        "rollout_log_probs": [-0.5, -0.6],
        "loss_mask": [1, 1],
        "status": slime.Sample.Status.ABORTED,
    }
    return slime.Sample(**{**given, **changes})


def rows_of(count: int) -> dict[str, Any]:
    return {"top_p_token_ids": b64(range(60, 60 + count)), "top_p_token_offsets": b64(range(count + 1))}


# ---- bytes


def test_bytes_are_read_wherever_they_are_offered(slime: Any) -> None:
    def no_lines() -> Any:
        raise AssertionError("lines lose their ends")

    response = bytes_response(stream_of([11], incremental=True, finish=STOP))
    response.aiter_lines = no_lines
    assert Run(slime, response)(slime.Sample(prompt="p")).tokens == [1, 2, 11]


def test_unicode_line_separators_inside_the_text(slime: Any) -> None:
    """httpx's line decoder would cut this event in two, and slime would skip both halves as no JSON."""
    text = "a\u2028b\u2029c\u0085d"
    body = json.dumps(chunk(text, pairs_of([11]), 1, finish_reason=STOP), ensure_ascii=False)
    run = Run(slime, bytes_response([f"data: {body}\n\n".encode()], cut=3))
    assert run(slime.Sample(prompt="p")).response == text


# ---- streams that slime's own accumulator refuses


def test_abort_snapshot_among_deltas(slime: Any) -> None:
    """A request that is aborted in the waiting queue says everything once more (SGLang ``_handle_abort_req``)."""
    expected = json.loads((STREAMS / "14_abort_in_queue_incremental.json").read_text(encoding="utf-8"))["indices"]["0"]
    body = (STREAMS / "14_abort_in_queue_incremental.sse").read_bytes()
    run = Run(slime, bytes_response([body]))
    sample = run(slime.Sample(prompt="p"), max_new_tokens=64)
    assert sample.tokens[2:] == [row[1] for row in expected["output_token_logprobs"]]
    assert sample.rollout_log_probs == [row[0] for row in expected["output_token_logprobs"]]
    assert (sample.response, sample.status) == (expected["text"], slime.Sample.Status.ABORTED)


def hybrid(tokens: list[int]) -> list[dict[str, Any]]:
    """0.5.10 with its incremental flag: ids and text are deltas, rows are snapshots."""
    chunks = stream_of(tokens, incremental=True, finish=STOP)
    for end, item in enumerate(chunks, 1):
        item["meta_info"]["output_token_logprobs"] = pairs_of(tokens[:end])
    return chunks


def test_snapshots_of_rows_beside_deltas_of_ids(slime: Any) -> None:
    sample = Run(slime, lines_response(hybrid([11, 12, 13])))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response) == ([1, 2, 11, 12, 13], "<11><12><13>")


def test_snapshots_of_rows_beside_deltas_of_ids_in_the_accumulator() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="incremental")
    assert [accumulator.add(item).tokens for item in hybrid([11, 12, 13])] == [[11], [12], [13]]
    assert accumulator.response_text(lambda _ids: "decoded") == "<11><12><13>"


def test_a_repeat_of_the_terminal_chunk_is_ignored(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    sample = Run(slime, lines_response([*chunks, *chunks]))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11], "<11>", slime.Sample.Status.COMPLETED)


def test_an_end_that_is_not_the_end_is_refused(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    sample = slime.Sample(prompt="p")
    with pytest.raises(ProtocolError, match="a later chunk goes on"):
        Run(slime, lines_response([*chunks, chunk("<12>", pairs_of([12]), 2)]))(sample)
    assert sample.tokens == [1, 2, 11]


def test_the_junk_token_of_a_rejected_request_is_not_trained_on(slime: Any) -> None:
    reason = {"type": "abort", "message": "bad grammar", "status_code": 400, "err_type": "BadRequestError"}
    item = {
        "text": "?",
        "output_ids": [77],
        "meta_info": {"id": "r", "finish_reason": reason, "prompt_tokens": 1, "completion_tokens": 1},
    }
    sample = Run(slime, lines_response([item]))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response, sample.status) == ([1, 2], "", slime.Sample.Status.ABORTED)


def test_an_abort_before_the_first_token_may_lack_the_length(slime: Any) -> None:
    body = (STREAMS / "17_abort_before_prefill_old.sse").read_bytes()
    sample = Run(slime, bytes_response([body]))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.status) == ([1, 2], slime.Sample.Status.ABORTED)


# ---- causes


@pytest.mark.parametrize("incremental", [True, False])
def test_a_flag_that_is_not_the_servers(slime: Any, incremental: bool) -> None:
    chunks = stream_of([11, 12, 13], incremental=not incremental, finish=STOP)
    run = Run(slime, lines_response(chunks), sglang_incremental_streaming_output=incremental)
    sample = slime.Sample(prompt="p")
    with pytest.raises(ProtocolError, match=r"inconsistent output_token_logprobs_length.*mode=.*incremental-streaming"):
        run(sample)
    assert (sample.tokens, sample.response) == ([1, 2, 11], "<11>")


def test_a_null_logprob_names_the_token(slime: Any) -> None:
    sample = slime.Sample(prompt="p")
    with pytest.raises(PayloadError, match=r"logprob of token 12 .* is null, which is how SGLang writes NaN"):
        Run(slime, lines_response([chunk("ab", [[-0.1, 11, None], [None, 12, None]], 2)]))(sample)
    assert sample.tokens == [1, 2]


def test_a_sampler_that_broke_down(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish={"type": "stop", "matched": "NaN happened"})
    with pytest.raises(ServerError, match="outside the vocabulary"):
        Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))


def test_an_old_server_or_a_gateway_without_the_length(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    del chunks[0]["meta_info"]["output_token_logprobs_length"]
    with pytest.raises(ValueError, match=r"must include output_token_logprobs_length\..*gateway"):
        Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))


def test_the_answer_to_somebody_elses_request(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    chunks[0]["index"] = 1
    with pytest.raises(ProtocolError, match="index 1 came in the answer to a request for one output"):
        Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))


def test_an_error_event_with_an_index(slime: Any) -> None:
    event = {"error": {"message": "worker lost", "code": 500}, "index": 0}
    with pytest.raises(ServerError, match="worker lost"):
        Run(slime, lines_response([event]))(slime.Sample(prompt="p"))


# ---- top-p rows over several calls


def test_rows_of_a_resumed_sample_whose_masked_part_has_none(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11, 12, 13], incremental=True, finish=STOP, **rows_of(3))))
    sample = run(resumable(slime, loss_mask=[0, 0]))
    assert sample.rollout_top_p_token_offsets.tolist() == [0, 0, 0, 1, 2, 3]
    assert sample.rollout_top_p_token_ids.tolist() == [60, 61, 62]


@pytest.mark.parametrize("mask", [[1, 1], [0, 1], None])
def test_rows_of_a_resumed_sample_whose_trained_part_has_none(slime: Any, mask: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True, finish=STOP, **rows_of(1))))
    sample = resumable(slime, loss_mask=mask)
    with pytest.raises(ReplayError, match=r"response tokens before them are trained on .*server abort"):
        run(sample)


@pytest.mark.parametrize("incremental", [True, False])
def test_rows_of_a_resumed_sample_that_has_them(slime: Any, incremental: bool) -> None:
    """Between, its rows are taken off, as tokens without rows stand behind them."""
    chunks = stream_of([11, 12, 13], incremental=incremental, finish=STOP, **rows_of(3))
    run = Run(slime, lines_response(chunks), sglang_incremental_streaming_output=incremental)
    sample = run(resumable(slime, rollout_top_p_token_ids=[50, 51], rollout_top_p_token_offsets=[0, 1, 2]))
    assert sample.rollout_top_p_token_ids.tolist() == [50, 51, 60, 61, 62]
    assert sample.rollout_top_p_token_offsets.tolist() == [0, 1, 2, 3, 4, 5]
    assert (sample.tokens, sample.response_length) == ([1, 2, 5, 6, 11, 12, 13], 5)


def test_rows_that_are_lost_by_a_cut_are_warned_of(slime: Any, caplog: pytest.LogCaptureFixture) -> None:
    chunks = stream_of([11, 12], incremental=True)
    run = Run(slime, lines_response(chunks), state=state_of(aborted=True))
    sample = resumable(slime, rollout_top_p_token_ids=[50, 51], rollout_top_p_token_offsets=[0, 1, 2])
    with caplog.at_level(logging.WARNING):
        run(sample)
    assert (sample.tokens, sample.status) == ([1, 2, 5, 6, 11], slime.Sample.Status.ABORTED)
    assert (sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets) == (None, None)
    assert "top-p rows of 2 response tokens were dropped" in caplog.text


def test_a_cut_before_the_first_token_loses_no_rows(slime: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(slime, lines_response(stream_of([], incremental=True)), state=state_of(aborted=True))
    sample = run(resumable(slime, rollout_top_p_token_ids=[50, 51], rollout_top_p_token_offsets=[0, 1, 2]))
    assert (sample.rollout_top_p_token_offsets, caplog.records) == ([0, 1, 2], [])


def test_a_finished_call_without_rows_behind_one_with(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True, finish=STOP)))
    sample = resumable(slime, rollout_top_p_token_ids=[50, 51], rollout_top_p_token_offsets=[0, 1, 2])
    with pytest.raises(
        ReplayError, match="first 2 response tokens have top-p rows and the tokens of this call have none"
    ):
        run(sample)


def test_an_array_without_rows_is_no_error(slime: Any) -> None:
    """``""`` on the wire; slime's decoder raises on it."""
    item = chunk("a", pairs_of([11]), 1, finish_reason=STOP, routed_experts="")
    run = Run(slime, lines_response([item]), use_rollout_routing_replay=True)
    run.state.tokenizer.encode = lambda *_args, **_kwargs: []
    sample = run(slime.Sample(prompt=""))
    assert sample.rollout_routed_experts.shape == (0, 1, 1)


# ---- arguments


def test_each_request_has_a_rid_of_its_own(slime: Any) -> None:
    run = Run(slime, *(lines_response(stream_of([11], incremental=True, finish=STOP)) for _ in range(2)))
    run(slime.Sample(prompt="p"))
    run(slime.Sample(prompt="p"))
    first, second = (payload["rid"] for _, payload, _ in run.client.requests)
    assert first != second
    assert len(first) == len(second)


def test_an_unknown_way_of_aborting_is_refused_before_anything_is_sent(slime: Any) -> None:
    run = Run(slime, ssefold_abort="somehow")
    with pytest.raises(ValueError, match="ssefold_abort must be 'disconnect', 'direct' or 'router', not 'somehow'"):
        run(slime.Sample(prompt="p"))
    assert run.client.requests == []


def test_disconnect_needs_nothing_but_stream(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True)), state=state_of(aborted=True))
    assert not hasattr(run.client, "post")
    assert run(slime.Sample(prompt="p")).tokens == [1, 2, 11]


@pytest.mark.parametrize("flag", [ABSENT, None])
def test_auto_reads_every_handed_out_stream_that_has_lengths(slime: Any, flag: Any) -> None:
    """Recorded bodies of single requests that asked for logprobs, without a word about the server's flag."""
    seen = 0
    for path in sorted(STREAMS.glob("*.sse")):
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        body = path.read_bytes()
        expected = about["indices"].get("0")
        if not expected or not expected["complete"] or len(about["indices"]) > 1 or about["error"]:
            continue
        rows = expected["output_token_logprobs"]
        if b"output_token_logprobs_length" not in body or not rows or any(row[0] is None for row in rows):
            continue
        run = Run(slime, bytes_response([body], cut=11), sglang_incremental_streaming_output=flag)
        run.args.num_layers, run.args.moe_router_topk = _shape(expected)
        sample = slime.Sample(prompt="p", tokens=list(range(_prompt_tokens(body))))
        before = len(sample.tokens)
        run(sample, max_new_tokens=999)
        assert sample.tokens[before:] == [row[1] for row in rows], path.name
        assert sample.response == expected["text"] or expected["text"] is None, path.name
        seen += 1
    assert seen >= 8


def _shape(expected: dict[str, Any]) -> tuple[int, int]:
    experts = expected.get("routed_experts")
    return (experts["num_layers"], experts["topk"]) if experts else (1, 1)


def _prompt_tokens(body: bytes) -> int:
    found = [
        json.loads(line[5:])["meta_info"].get("prompt_tokens", 1)
        for line in body.splitlines()
        if line.startswith(b"data: {") and b"meta_info" in line
    ]
    return max(found, default=1)


def test_a_response_of_any_iterator(slime: Any) -> None:
    """What is iterated need not be a generator that can be closed."""

    class Lines:
        def __init__(self) -> None:
            self.left = [f"data: {json.dumps(item)}" for item in stream_of([11], incremental=True, finish=STOP)]

        def __aiter__(self) -> Lines:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    response = SimpleNamespace(raise_for_status=lambda: None, aiter_lines=Lines)
    assert Run(slime, response)(slime.Sample(prompt="p")).tokens == [1, 2, 11]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_no_json_is_named(slime: Any, number: str) -> None:
    """slime's own parser takes it, and it would be trained on."""
    chunks = stream_of([11, 12], incremental=True, finish=STOP)
    broken = json.dumps(chunks[1]).replace("-0.12", number).encode()
    sample = slime.Sample(prompt="p")
    with pytest.raises(PayloadError, match=rf"^{number} in the chunk .*cannot be trained on"):
        Run(slime, bytes_response([chunks[0], b"data: " + broken + b"\n\n"]))(sample)
    assert (sample.tokens, sample.status) == ([1, 2, 11], slime.Sample.Status.PENDING)


def test_text_that_says_nan_is_text(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    chunks[0]["text"] = "NaN"
    assert Run(slime, bytes_response([b'data: {"NaN\n\n', *chunks]))(slime.Sample(prompt="p")).response == "NaN"


def test_an_abort_snapshot_that_has_prompt_tokens_names_the_cause(slime: Any) -> None:
    """SGLang sends an abort that says everything once more without ``prompt_tokens``, by which it is known."""
    abort = {"type": "abort", "message": "Abort in waiting queue"}
    chunks = stream_of([11, 12, 13], incremental=True)
    meta = {"id": "r", "finish_reason": abort, "prompt_tokens": 2, "completion_tokens": 3}
    snapshot = {**chunk("<11><12><13>", pairs_of([11, 12, 13]), 3, **meta), "output_ids": [13]}
    sample = slime.Sample(prompt="p")
    with pytest.raises(ProtocolError, match=r"abort.*prompt_tokens"):
        Run(slime, lines_response([*chunks, snapshot]))(sample)
    assert sample.tokens == [1, 2, 11, 12, 13]


@pytest.mark.parametrize("size", [6, 8])
def test_routed_experts_of_one_byte(slime: Any, size: int) -> None:
    """Newer servers say ``routed_experts_dtype``; the array is the sample's own to decode."""
    experts = base64.b64encode(bytes(range(size))).decode()
    terminal: dict[str, Any] = {"routed_experts": experts, "routed_experts_dtype": "uint8"}
    sample = slime.Sample(prompt="p")
    seen: list[Any] = []
    sample.append_response_tokens = lambda *_args, **given: seen.append(given["meta_info"])
    Run(slime, lines_response(stream_of([11, 12], incremental=True, finish=STOP, **terminal)))(sample)
    assert {key: seen[-1][key] for key in terminal} == terminal
