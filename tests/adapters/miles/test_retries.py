"""Requests that failed before their first token are repeated, as miles' own ``post`` does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import IncompleteStreamError, ServerError
from ssefold.adapters.miles import attempts

from ..fakes import lines_response, stream_of
from .runs import Run, finished


class StatusError(Exception):
    """As httpx has it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.response = SimpleNamespace(status_code=status)


def answered(status: int) -> Any:
    return lines_response([], status_error=StatusError(status))


def ended(**finish: Any) -> Any:
    meta = {"id": "r", "finish_reason": {"type": "abort", "message": "full", **finish}}
    return lines_response([{"text": "", "output_ids": [], "meta_info": meta}])


CURED = {
    "status 500": lambda: answered(500),
    "status 503": lambda: answered(503),
    "status 429": lambda: answered(429),
    "refused": lambda: lines_response([], status_error=ConnectionRefusedError()),
    "overloaded": lambda: ended(status_code=503),
    "lost in the scheduler": lambda: ended(status_code=500, err_type="InternalServerError"),
    "error event": lambda: lines_response([{"error": {"message": "CUDA error", "code": 500}}]),
    "empty body": lambda: lines_response([]),
    "broken off": lambda: lines_response([ConnectionResetError()]),
}


@pytest.mark.parametrize("cause", CURED)
def test_another_attempt_cures(miles: Any, cause: str) -> None:
    run = Run(miles, CURED[cause](), CURED[cause](), finished(11))
    sample = run(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.rollout_log_probs) == ([1, 2, 11], [-0.11])
    rids = [payload["rid"] for payload in run.payloads]
    assert len(set(rids)) == 3
    assert [payload["input_ids"] for payload in run.payloads] == [[1, 2]] * 3


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (lambda: answered(400), StatusError),
        (lambda: ended(status_code=400, err_type="BadRequestError"), ServerError),
        (lambda: lines_response([{"error": {"message": "too long", "code": 400}}]), ServerError),
        (lambda: lines_response([*stream_of([11], incremental=True), ConnectionResetError()]), ConnectionResetError),
        (lambda: lines_response(stream_of([11], incremental=True)), IncompleteStreamError),
    ],
    ids=["status 400", "refused request", "error event", "broken off after a token", "cut after a token"],
)
def test_what_another_attempt_would_not_cure_is_raised_at_once(miles: Any, response: Any, error: Any) -> None:
    run = Run(miles, response(), finished(11))
    with pytest.raises(error):
        run(miles.Sample(prompt="p"))
    assert len(run.payloads) == 1


def test_the_last_failure_is_raised(miles: Any) -> None:
    run = Run(miles, *(ended(status_code=503) for _ in range(attempts.ATTEMPTS)))
    sample = miles.Sample(prompt="p")
    with pytest.raises(ServerError, match=r"refused the request \(status 503\): full"):
        run(sample)
    assert (sample.status, sample.tokens, sample.rollout_log_probs) == (miles.Sample.Status.PENDING, [1, 2], None)


def test_an_aborted_rollout_repeats_nothing(miles: Any) -> None:
    run = Run(miles, answered(503), aborted=True)
    with pytest.raises(StatusError):
        run(miles.Sample(prompt="p"))
    assert len(run.payloads) == 1
