"""Checklist, part 3: the order of effects, one test per row."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold.adapters import slime as adapter

from ..fakes import LENGTH, RESPONSES, STOP, Client, b64, chunk, lines_response, stream_of
from .runs import Run, state_of


def finished(*tokens: int, **terminal: Any) -> Any:
    return lines_response(stream_of(list(tokens) or [11], incremental=True, finish=STOP, **terminal))


def resumable(slime: Any, **changes: Any) -> Any:
    given = {
        "prompt": "p",
        "tokens": [1, 2, 5],
        "response": "five",
        "response_length": 1,
        "rollout_log_probs": [-0.5],
        "loss_mask": [1],
        "status": slime.Sample.Status.ABORTED,
    }
    return slime.Sample(**{**given, **changes})


class Spy:
    """A state whose making is noted."""

    def __init__(self, slime: Any) -> None:
        self.made = 0
        self.slime = slime

    def __call__(self, _args: Any) -> Any:
        self.made += 1
        return state_of()


def test_row_01_ci_test_wants_a_string_before_the_state_is_made(slime: Any) -> None:
    run = Run(slime, finished(), ci_test=True)
    slime.sglang_rollout.GenerateState = spy = Spy(slime)
    with pytest.raises(AssertionError):
        run(slime.Sample(prompt=[{"role": "user", "content": "p"}]))
    assert spy.made == 0


def test_row_02_the_state_is_made_before_the_status_is_looked_at(slime: Any) -> None:
    run = Run(slime, finished())
    slime.sglang_rollout.GenerateState = spy = Spy(slime)
    with pytest.raises(AssertionError):
        run(slime.Sample(prompt="p", status=slime.Sample.Status.COMPLETED))
    assert spy.made == 1


def test_row_03_one_router_over_http(slime: Any) -> None:
    run = Run(slime, finished(), sglang_router_ip="10.0.0.7", sglang_router_port=30000)
    run(slime.Sample(prompt="p"))
    assert [url for url, _, _ in run.client.requests] == ["http://10.0.0.7:30000/generate"]


@pytest.mark.parametrize("name", ["COMPLETED", "TRUNCATED", "FAILED"])
def test_row_04_the_status_must_be_pending_or_aborted(slime: Any, name: str) -> None:
    sample = slime.Sample(prompt="p", status=slime.Sample.Status[name])
    with pytest.raises(AssertionError, match=f"Sample status is Status.{name}"):
        Run(slime)(sample)


def test_row_05_prompt_ids_are_prepared_by_slime(slime: Any) -> None:
    def processor(*, text: str, images: list[Any]) -> dict[str, Any]:
        return {"input_ids": [[3, 4]], "attention_mask": [[1, 1]], "pixel_values": [0.5]}

    class Image:
        def convert(self, mode: str) -> bytes:
            return mode.encode()

    run = Run(slime, finished(), state=state_of(processor=processor))
    sample = run(slime.Sample(prompt="p", multimodal_inputs={"images": [Image()]}))
    assert sample.multimodal_train_inputs == {"pixel_values": [0.5]}
    assert sample.tokens == [3, 4, 11]


def test_row_06_the_budget_shrinks_in_a_copy(slime: Any) -> None:
    run = Run(slime, finished())
    params = {"max_new_tokens": 8, "temperature": 1.0}
    asyncio.run(adapter.generate_streaming(run.args, resumable(slime), params))
    assert run.client.requests[0][1]["sampling_params"] == {"max_new_tokens": 7, "temperature": 1.0}
    assert params == {"max_new_tokens": 8, "temperature": 1.0}


def test_row_06_no_budget(slime: Any) -> None:
    run = Run(slime, finished())
    with pytest.raises(KeyError, match="max_new_tokens"):
        asyncio.run(adapter.generate_streaming(run.args, slime.Sample(prompt="p"), {}))


def test_row_07_a_negative_budget(slime: Any) -> None:
    with pytest.raises(AssertionError, match="max_new_tokens: -1 should not be less than 0"):
        Run(slime)(resumable(slime), max_new_tokens=0)


def test_row_08_no_budget_left_returns_at_once(slime: Any) -> None:
    run = Run(slime)
    slime.http_utils._http_client = None
    sample = slime.Sample(prompt="p")
    assert run(sample, max_new_tokens=0) is sample
    assert (sample.status, sample.tokens, sample.trace) == (slime.Sample.Status.TRUNCATED, [], None)


@pytest.mark.parametrize("replay", [False, True])
def test_row_09_payload(slime: Any, replay: bool) -> None:
    run = Run(slime, finished(), use_rollout_routing_replay=replay)
    run(slime.Sample(prompt="p"), stop=["x"])
    payload = dict(run.client.requests[0][1])
    assert len(payload.pop("rid")) == 32
    assert payload == {
        "sampling_params": {"max_new_tokens": 8, "stop": ["x"]},
        "return_logprob": True,
        "stream": True,
        "input_ids": [1, 2],
        **({"return_routed_experts": True} if replay else {}),
    }


def test_row_10_images_go_with_the_text_and_without_ids(slime: Any) -> None:
    class Image:
        def convert(self, mode: str) -> bytes:
            return mode.encode()

    run = Run(slime, finished())
    run(slime.Sample(prompt="look", multimodal_inputs={"images": [Image(), Image()]}))
    payload = run.client.requests[0][1]
    assert payload["image_data"] == ["data:image/png;base64,UkdC"] * 2
    assert payload["text"] == "look"
    assert "input_ids" not in payload


@pytest.mark.parametrize("train_inputs", [None, {"pixel_values": [0.5]}])
def test_row_10_a_resume_with_images_sends_ids_and_no_text(slime: Any, train_inputs: Any) -> None:
    """The expanded prompt and the partial response: no text says the latter."""

    class Image:
        def convert(self, mode: str) -> bytes:
            return mode.encode()

    def processor(*, text: str, images: list[Any]) -> dict[str, Any]:
        return {"input_ids": [[3, 4, 4]]}

    sample = resumable(
        slime,
        tokens=[3, 4, 4, 5],
        multimodal_inputs={"images": [Image()]},
        multimodal_train_inputs=train_inputs,
    )
    run = Run(slime, finished(12), state=state_of(processor=processor))
    assert run(sample).tokens == [3, 4, 4, 5, 12]
    payload = run.client.requests[0][1]
    assert payload["image_data"] == ["data:image/png;base64,UkdC"]
    assert payload["input_ids"] == [3, 4, 4, 5]
    assert "text" not in payload


@pytest.mark.parametrize("multimodal", [None, {}, {"images": []}, {"images": None, "videos": None}])
def test_row_10_no_images(slime: Any, multimodal: Any) -> None:
    run = Run(slime, finished())
    run(slime.Sample(prompt="p", multimodal_inputs=multimodal))
    assert run.client.requests[0][1]["input_ids"] == [1, 2]


def test_row_11_tokens_begin_with_the_prompt(slime: Any) -> None:
    sample = slime.Sample(prompt="p")
    run = Run(slime, lines_response([]))
    with pytest.raises(RuntimeError):
        run(sample)
    assert sample.tokens == [1, 2]


@pytest.mark.parametrize(
    ("session", "policy", "headers"),
    [
        ("s1", "consistent_hashing", {"X-SMG-Routing-Key": "s1"}),
        ("s1", "round_robin", None),
        ("s1", None, None),
        (None, "consistent_hashing", None),
        ("", "consistent_hashing", None),
    ],
)
def test_row_12_routing_key(slime: Any, session: str | None, policy: str | None, headers: Any) -> None:
    run = Run(slime, finished(), router_policy=policy)
    run(slime.Sample(prompt="p", session_id=session))
    assert run.client.requests[0][2] == headers


def test_row_13_and_22_replace_starts_from_the_state_before_the_call(slime: Any) -> None:
    sample = resumable(slime, rollout_top_p_token_ids=[50], rollout_top_p_token_offsets=[0, 1])
    tokens = sample.tokens
    rows = {"top_p_token_ids": b64([60, 61]), "top_p_token_offsets": b64([0, 1, 2])}
    Run(slime, finished(11, 12, **rows))(sample)
    assert sample.tokens == [1, 2, 5, 11, 12]
    assert sample.rollout_log_probs == [-0.5, -0.11, -0.12]
    assert sample.loss_mask == [1, 1, 1]
    assert sample.rollout_top_p_token_ids.tolist() == [50, 60, 61]
    assert sample.rollout_top_p_token_offsets.tolist() == [0, 1, 2, 3]
    assert sample.response == "five<11><12>"
    assert sample.tokens is not tokens


def test_row_14_and_15_the_flag_is_read_before_the_client(slime: Any) -> None:
    class Args(SimpleNamespace):
        @property
        def sglang_incremental_streaming_output(self) -> bool:
            raise ZeroDivisionError("read")

    run = Run(slime)
    run.args = Args(**{k: v for k, v in vars(run.args).items() if k != "sglang_incremental_streaming_output"})
    slime.http_utils._http_client = None
    with pytest.raises(ZeroDivisionError):
        run(slime.Sample(prompt="p"))


def test_row_16_before_the_stream_the_response_is_left_alone(slime: Any) -> None:
    sample = resumable(slime)
    run = Run(slime)
    slime.http_utils._http_client = None
    with pytest.raises(AssertionError):
        run(sample)
    assert sample.response == "five"


def test_row_17_and_25_span(slime: Any) -> None:
    sample = Run(slime, finished())(resumable(slime))
    [(name, attrs)] = sample.trace["events"]
    assert name == "sglang_generate_stream"
    assert attrs == {
        "max_new_tokens": 7,
        "prompt_tokens": 2,
        "completion_tokens": 1,
        "finish_reason": "stop",
        "sglang_request_id": "r",
    }


def test_row_18_a_status_error_comes_before_any_line_and_raw(slime: Any) -> None:
    class HTTPStatusError(Exception):
        pass

    def lines() -> Any:
        raise AssertionError("no line may be read")

    def raise_for_status() -> None:
        raise HTTPStatusError("503")

    sample = resumable(slime)
    run = Run(slime, SimpleNamespace(raise_for_status=raise_for_status, aiter_lines=lines))
    with pytest.raises(HTTPStatusError):
        run(sample)
    assert (sample.response, sample.tokens, len(run.client.requests)) == ("five", [1, 2, 5], 1)


def test_row_18_transport_errors_propagate_raw(slime: Any) -> None:
    class ReadError(Exception):
        pass

    sample = slime.Sample(prompt="p")
    chunks = [*stream_of([11], incremental=True), ReadError("gone")]
    with pytest.raises(ReadError):
        Run(slime, lines_response(chunks))(sample)
    assert (sample.tokens, sample.response) == ([1, 2, 11], "<11>")


def test_row_19_lines(slime: Any) -> None:
    """Empty ones, other fields and the sentinel are passed over, and reading goes on behind the sentinel."""
    first, second = (f"data:{json.dumps(item)}  " for item in stream_of([11, 12], incremental=True, finish=STOP))
    lines = ["", ": hi", "event: x", "id: 1", first, "data:", "data:   ", "data: [DONE]", "data:[DONE] ", second]
    sample = Run(slime, lines_response(lines))(slime.Sample(prompt="p"))
    assert sample.tokens == [1, 2, 11, 12]
    assert sample.status == slime.Sample.Status.COMPLETED


@pytest.mark.parametrize("kind", RESPONSES)
def test_row_20_what_is_not_json_is_passed_over_with_a_warning(
    slime: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stream_of([11, 12], incremental=True, finish=STOP)
    junk = "{" + "x" * 200
    item: Any = f"data: {junk}" if kind == "lines" else f"data: {junk}\n\n".encode()
    with caplog.at_level(logging.WARNING):
        sample = Run(slime, RESPONSES[kind]([first, item, second]))(slime.Sample(prompt="p"))
    assert sample.tokens == [1, 2, 11, 12]
    [record] = caplog.records
    assert record.getMessage() == f"sglang_streaming: skipping non-JSON chunk: {junk[:120]!r}"


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("step", [1, 3, 50])
def test_row_21_and_23_every_chunk_is_accumulated(slime: Any, kind: str, incremental: bool, step: int) -> None:
    tokens = list(range(11, 31))
    chunks = stream_of(tokens, incremental=incremental, step=step, finish=LENGTH, weight_version="w7", cached_tokens=1)
    run = Run(slime, RESPONSES[kind](chunks), sglang_incremental_streaming_output=incremental)
    sample = run(slime.Sample(prompt="p"), max_new_tokens=20)
    assert sample.tokens == [1, 2, *tokens]
    assert sample.rollout_log_probs == [-token / 100 for token in tokens]
    assert (sample.response_length, sample.loss_mask) == (20, [1] * 20)
    assert sample.response == "".join(f"<{token}>" for token in tokens)
    assert sample.status == slime.Sample.Status.TRUNCATED
    assert (sample.weight_versions, sample.prefix_cache_info.cached_tokens) == (["w7"], 1)


def test_row_23_terminal_facts_are_taken_once(slime: Any) -> None:
    chunks = stream_of([11, 12, 13], incremental=True, finish=STOP, weight_version="w7")
    for item in chunks:
        item["meta_info"]["weight_version"] = "w7"
    sample = Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))
    assert sample.weight_versions == ["w7"]
    assert sample.prefix_cache_info.total_prompt_tokens == 2


@pytest.mark.parametrize("kind", RESPONSES)
def test_row_24_the_abort_is_looked_at_behind_every_chunk(slime: Any, kind: str) -> None:
    """Also when the rest has arrived in the same read."""
    run = Run(
        slime, RESPONSES[kind](stream_of([11, 12, 13], incremental=True, finish=STOP)), state=state_of(aborted=True)
    )
    sample = run(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11], "<11>", slime.Sample.Status.ABORTED)


def test_row_25_no_span_attributes_without_a_finish_reason(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True)), state=state_of(aborted=True))
    sample = run(slime.Sample(prompt="p"))
    assert sample.trace["events"] == [("sglang_generate_stream", {"max_new_tokens": 8})]


def test_row_26_text_is_put_together_once_and_decoded_at_most_once(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11, 12, 13], incremental=True, finish=STOP, text=False)))
    sample = run(resumable(slime), skip_special_tokens=False)
    assert sample.response == "five(11)(12)(13)"
    assert run.state.tokenizer.decoded == [([11, 12, 13], {"skip_special_tokens": False})]


def test_row_26_special_tokens_are_skipped_by_default(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True, finish=STOP, text=False)))
    run(slime.Sample(prompt="p"))
    assert run.state.tokenizer.decoded == [([11], {"skip_special_tokens": True})]


def test_row_26_text_is_written_on_errors_too(slime: Any) -> None:
    first, second = stream_of([11, 12], incremental=True)
    second["meta_info"]["output_token_logprobs_length"] = 5
    sample = resumable(slime)
    with pytest.raises(ValueError, match="inconsistent output_token_logprobs_length"):
        Run(slime, lines_response([first, second]))(sample)
    assert (sample.response, sample.tokens) == ("five<11>", [1, 2, 5, 11])


@pytest.mark.parametrize("kind", RESPONSES)
def test_row_27_the_end_without_a_finish_reason(slime: Any, kind: str) -> None:
    sample = slime.Sample(prompt="p")
    with pytest.raises(RuntimeError, match=r"SGLang streaming response ended without a terminal finish_reason\."):
        Run(slime, RESPONSES[kind](stream_of([11], incremental=True)))(sample)
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11], "<11>", slime.Sample.Status.PENDING)


def test_row_27_aborted_and_no_finish_reason(slime: Any) -> None:
    run = Run(slime, lines_response([]), state=state_of(aborted=True))
    assert run(slime.Sample(prompt="p")).status == slime.Sample.Status.ABORTED


@pytest.mark.parametrize("aborted", [False, True])
def test_row_28_a_cancellation_is_never_swallowed(slime: Any, aborted: bool) -> None:
    seen, state = asyncio.Event(), state_of()

    async def lines() -> AsyncIterator[str]:
        yield "data: " + json.dumps(chunk(None, [[-0.1, 11, None]], 1))
        seen.set()
        await asyncio.Event().wait()

    run = Run(slime, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines), state=state)
    sample = slime.Sample(prompt="p")

    async def exercise() -> None:
        task = asyncio.create_task(run.call(sample))
        await seen.wait()
        state.aborted = aborted
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(exercise())
    assert (sample.tokens, sample.response, run.client.closed) == ([1, 2, 11], "(11)", 1)
    assert sample.status == slime.Sample.Status.PENDING


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (LENGTH, "TRUNCATED"),
        (STOP, "COMPLETED"),
        ({"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}, "ABORTED"),
        ({"type": "something new"}, "PENDING"),
    ],
)
@pytest.mark.parametrize("aborted", [False, True])
def test_row_29_a_finish_reason_wins(slime: Any, finish: dict[str, Any], status: str, aborted: bool) -> None:
    chunks = stream_of([11], incremental=True, finish=finish)
    run = Run(slime, lines_response(chunks), state=state_of(aborted=aborted))
    assert run(slime.Sample(prompt="p")).status == slime.Sample.Status[status]


def test_the_response_is_closed_before_the_span_ends(slime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(slime, finished())
    closed: list[int] = []

    class Span:
        def __enter__(self) -> Any:
            return SimpleNamespace(update=lambda _attrs: closed.append(run.client.closed))

        def __exit__(self, *_: object) -> None:
            closed.append(run.client.closed)

    monkeypatch.setattr(adapter, "trace_span", lambda *_args, **_kwargs: Span())
    run(slime.Sample(prompt="p"))
    assert closed == [1, 1]


def test_a_client_of_another_kind_is_used_as_it_is(slime: Any) -> None:
    assert not hasattr(Client, "post")
    run = Run(slime, finished())
    assert run(slime.Sample(prompt="p")).tokens == [1, 2, 11]
