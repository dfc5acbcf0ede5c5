"""Checklist, part 1: the shape of the function.  One test per row of the drop-in contract, named after it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold.adapters import slime as adapter

from ..fakes import STOP, chunk, lines_response, stream_of
from .runs import Run, args_of, state_of


def test_row_1_parameter_names_and_no_evaluation() -> None:
    signature = inspect.signature(adapter.generate_streaming)
    assert list(signature.parameters) == ["args", "sample", "sampling_params"]
    assert inspect.iscoroutinefunction(adapter.generate_streaming)


def test_row_2_found_by_its_path(slime: Any) -> None:
    found = slime.misc.load_function("ssefold.adapters.slime.generate_streaming")
    assert found is adapter.generate_streaming


def test_row_3_abort_mode() -> None:
    assert adapter.generate_streaming.abort_mode == "request"  # type: ignore[attr-defined]


def test_row_4_the_same_sample_is_returned(slime: Any) -> None:
    sample = slime.Sample(prompt="p")
    run = Run(slime, lines_response(stream_of([11], incremental=True, finish=STOP)))
    assert run(sample) is sample


def test_row_5_globals_are_looked_up_at_call_time(slime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state, spans = state_of(), list[Any]()

    def trace_span(*args: Any, **kwargs: Any) -> Any:
        spans.append((args, kwargs))
        return nullcontext(SimpleNamespace(update=lambda *_args, **_kwargs: None))

    @asynccontextmanager
    async def stream(method: str, url: str, json: Any, headers: Any) -> AsyncIterator[Any]:
        assert (method, url, json["stream"], headers) == ("POST", "http://frontend:8000/generate", True, None)
        yield lines_response(stream_of([11], incremental=True, finish=STOP))

    monkeypatch.setattr(adapter, "GenerateState", lambda _args: state)
    monkeypatch.setattr(adapter, "_prepare_prompt_ids", lambda *_args: [7, 8, 9])
    monkeypatch.setattr(adapter.http_utils, "_http_client", SimpleNamespace(stream=stream))
    monkeypatch.setattr(adapter, "trace_span", trace_span)
    sample = asyncio.run(adapter.generate_streaming(args_of(), slime.Sample(prompt="p"), {"max_new_tokens": 2}))
    assert sample.tokens == [7, 8, 9, 11]
    assert len(spans) == 1


def test_row_5_the_client_is_read_at_call_time(slime: Any) -> None:
    run = Run(slime, lines_response(stream_of([11], incremental=True, finish=STOP)))
    slime.http_utils._http_client = None
    with pytest.raises(AssertionError, match="http client not initialized; call init_http_client first"):
        run(slime.Sample(prompt="p"))
    slime.http_utils._http_client = run.client
    assert run(slime.Sample(prompt="p")).response == "<11>"


def test_row_6_and_7_a_client_with_stream_alone_and_a_response_with_lines_alone(slime: Any) -> None:
    """``Client.stream`` takes method, url, json and headers; the response has two attributes."""
    run = Run(slime, lines_response(stream_of([11, 12], incremental=True, finish=STOP)))
    assert run(slime.Sample(prompt="p")).tokens == [1, 2, 11, 12]
    assert run.client.closed == 1


def test_row_8_nothing_is_read_ahead(slime: Any) -> None:
    state = state_of()

    async def lines() -> AsyncIterator[str]:
        state.aborted = True
        yield "data: " + json.dumps(chunk("a", [[-0.1, 11, None]], 1))
        raise AssertionError("read on after the abort")

    response = SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines)
    sample = Run(slime, response, state=state)(slime.Sample(prompt="p"))
    assert (sample.status, sample.tokens, sample.rollout_log_probs, sample.response) == (
        slime.Sample.Status.ABORTED,
        [1, 2, 11],
        [-0.1],
        "a",
    )


def test_importable_without_slime_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "slime", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs slime for GenerateState.*another project"):
        asyncio.run(adapter.generate_streaming(args_of(), SimpleNamespace(prompt="p"), {"max_new_tokens": 1}))
    with pytest.raises(AttributeError, match="has no attribute 'GenerateStat'"):
        _ = adapter.GenerateStat


def test_a_broken_slime_is_not_called_absent(slime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapter._SLIMES, "trace_span", ("json.tool.nothing",))
    with pytest.raises(ModuleNotFoundError, match=r"json\.tool"):
        _ = adapter.trace_span
