"""miles' generate function, streamed: tokens, text and arrays of a response on the sample."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import GenerateDecoder
from ssefold.adapters import miles as adapter

from ..fakes import LENGTH, RESPONSES, STOP, b64, lines_response, pairs_of, stream_of
from .runs import Run, finished, resumable

np = pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("incremental", [True, False])
def test_streams(miles: Any, kind: str, incremental: bool) -> None:
    chunks = stream_of([11, 12, 13], incremental=incremental, finish=LENGTH, weight_version="w", cached_tokens=2)
    sample = Run(miles, RESPONSES[kind](chunks))(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.response_length, sample.response) == ([1, 2, 11, 12, 13], 3, "<11><12><13>")
    assert (sample.rollout_log_probs, sample.loss_mask) == ([-0.11, -0.12, -0.13], None)
    assert (sample.status, sample.cached_tokens) == (miles.Sample.Status.TRUNCATED, 2)
    [[span]] = [call.spans for call in sample.weight_versions]
    assert (span.version, span.abs_start, span.abs_end) == ("w", 2, 5)


def test_miles_gets_the_response_that_does_not_stream(miles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain data of its own, with every row of the call, and keys that this library has never heard of."""
    seen: list[Any] = []

    async def update(_args: Any, _sample: Any, **given: Any) -> None:
        seen.append(given)

    monkeypatch.setattr(adapter, "update_sample_from_response", update)
    run = Run(miles, finished(11, 12, 13, something_new=[{"x": 1}]))
    run(miles.Sample(prompt="p"))
    [given] = seen
    assert (given["update_loss_mask"], given["payload"]["input_ids"]) == (False, [1, 2])
    assert given["output"] == {
        "text": "<11><12><13>",
        "output_ids": [11, 12, 13],
        "meta_info": {
            "id": "r",
            "prompt_tokens": 2,
            "completion_tokens": 3,
            "finish_reason": STOP,
            "output_token_logprobs": pairs_of([11, 12, 13]),
            "output_token_logprobs_length": 3,
            "something_new": [{"x": 1}],
        },
    }


def test_a_loss_mask_goes_on(miles: Any) -> None:
    assert Run(miles, finished(11, 12))(resumable(miles, loss_mask=[0])).loss_mask == [0, 1, 1]


def test_text_is_decoded_where_none_came(miles: Any) -> None:
    run = Run(miles, lines_response(stream_of([11, 12], incremental=True, finish=STOP, text=False)))
    assert run(miles.Sample(prompt="p"), skip_special_tokens=False).response == "(11)(12)"
    assert run.state.tokenizer.decoded == [([11, 12], {"skip_special_tokens": False})]


def test_rows_of_the_whole_call_begin_it_anew(miles: Any) -> None:
    rows = {"top_p_token_ids": [1, 2], "top_p_token_offsets": [0, 1, 2]}
    sample = Run(miles, finished(11, 12, **rows))(resumable(miles, loss_mask=[1]))
    assert (sample.tokens, sample.loss_mask) == ([1, 2, 5, 11, 12], [1, 1, 1])
    assert sample.rollout_log_probs == [-0.5, -0.11, -0.12]


def test_nobody_elses_lists_grow(miles: Any) -> None:
    tokens, log_probs, mask = [1, 2, 5], [-0.5], [1]
    Run(miles, finished())(resumable(miles, tokens=tokens, rollout_log_probs=log_probs, loss_mask=mask))
    assert (tokens, log_probs, mask) == ([1, 2, 5], [-0.5], [1])


def test_replay_arrays(miles: Any) -> None:
    terminal = {"routed_experts": b64(range(16)), "indexer_topk": b64(range(24)), "indexer_topk_num_layers": 3}
    sample = Run(miles, finished(11, 12, 13, **terminal))(miles.Sample(prompt="p"))
    assert sample.rollout_routed_experts.shape == (4, 2, 2)
    assert sample.rollout_routed_experts.dtype == np.int32
    assert sample.rollout_routed_experts.reshape(-1).tolist() == list(range(16))
    assert sample.rollout_indexer_topk.shape == (4, 3, 2)
    assert sample.rollout_indexer_topk.reshape(-1).tolist() == list(range(24))


@pytest.mark.parametrize(
    ("terminal", "error", "message"),
    [
        ({"routed_experts": b64(range(15))}, ValueError, "reshape"),
        ({"routed_experts": b64([0] * 16)}, AssertionError, "no expert was ever chosen"),
        ({"indexer_topk": b64(range(8))}, AssertionError, "how many indexer layers"),
        (
            {"indexer_topk": b64(range(8)), "indexer_topk_num_layers": 2},
            AssertionError,
            "2 indexer layers came, 3 were due",
        ),
    ],
)
def test_the_checks_are_miles_own(miles: Any, terminal: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Run(miles, finished(11, 12, 13, **terminal), rollout_indexer_topk_num_streams=3)(miles.Sample(prompt="p"))


def test_arrays_of_an_earlier_call_do_not_outlive_it(miles: Any) -> None:
    earlier = {"rollout_routed_experts": np.zeros((2, 2, 2)), "rollout_indexer_topk": np.zeros((2, 2, 2))}
    cut = Run(miles, lines_response(stream_of([11], incremental=True)), aborted=True)(resumable(miles, **earlier))
    assert (cut.rollout_routed_experts, cut.rollout_indexer_topk) == (None, None)
    kept = Run(miles, lines_response(stream_of([], incremental=True)), aborted=True)(resumable(miles, **earlier))
    assert kept.rollout_routed_experts is earlier["rollout_routed_experts"]
    over = Run(miles, finished(11))(resumable(miles, **earlier))
    assert (over.rollout_routed_experts, over.rollout_indexer_topk) == (None, None)


@pytest.mark.parametrize(("given", "expected"), [({}, True), ({"ssefold_fast_path": False}, False)])
def test_the_fast_path_can_be_switched_off(
    miles: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: bool
) -> None:
    asked: list[Any] = []

    def decoder(**options: Any) -> GenerateDecoder:
        asked.append(options)
        return GenerateDecoder(**options)

    monkeypatch.setattr(adapter, "GenerateDecoder", decoder)
    assert Run(miles, finished(11, 12), **given)(miles.Sample(prompt="p")).tokens == [1, 2, 11, 12]
    assert asked == [{"fast_path": expected}]
