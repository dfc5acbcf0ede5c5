"""The parts that need no socket."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ssefold import PayloadError, StreamError, Update
from ssefold.transports import StreamMetrics, TransportError
from ssefold.transports._engine.abort import worker_urls
from ssefold.transports._engine.request import prepare

URL = "http://user:secret@127.0.0.1:30000/base/generate?x=1"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"text": "x"}, 1),
        ({"input_ids": [1, 2, 3]}, 1),
        ({"input_ids": []}, 1),
        ({"input_ids": [[1], [2, 3]]}, 2),
        ({"text": ["a", "b", "c"]}, 3),
        ({"text": ["a"], "sampling_params": {"n": 4}}, 4),
        ({"text": "x", "sampling_params": {"n": 4}}, 4),
        ({"text": "x", "sampling_params": None}, 1),
        ({"text": ["a", "b"], "sampling_params": [{"n": 2}, {"n": 2}]}, 4),
        ({"text": ["a", "b"], "sampling_params": [{"n": 2}, {"n": 3}]}, None),
        ({"text": ["a", "b"], "sampling_params": [{"n": 2}, None]}, None),
        ({"text": "x", "sampling_params": {"n": "2"}}, None),
        ({"text": "x", "sampling_params": {"n": 0}}, None),
        ({"text": "x", "sampling_params": "greedy"}, None),
        ({"text": "x", "sampling_params": {"n": 2, "beam_width": 4}}, None),
        ({"text": "x", "sampling_params": {"use_beam_search": True}}, None),
        ({"input_embeds": [[0.5]]}, None),
    ],
)
def test_how_many_outputs_a_payload_asks_for(payload: dict[str, Any], expected: int | None) -> None:
    assert prepare(URL, payload).expected == expected


@pytest.mark.parametrize(
    ("payload", "rids"),
    [
        ({"text": "x", "rid": "r"}, ("r",)),
        ({"text": ["x", "y"], "rid": "r"}, ("r_0", "r_1")),
        ({"text": ["x"], "rid": "r"}, ("r_0",)),
        ({"text": ["x", "y"], "rid": ["a", "b"]}, ("a", "b")),
    ],
)
def test_the_ids_that_the_server_will_use(payload: dict[str, Any], rids: tuple[str, ...]) -> None:
    assert prepare(URL, payload).rids == rids


@pytest.mark.parametrize("rid", [0, False, 7, "", [], [""], ["a", 3], {"a": 1}])
def test_an_id_that_is_none_is_refused_and_never_replaced(rid: Any) -> None:
    with pytest.raises(PayloadError, match="rid must be a str"):
        prepare(URL, {"text": "x", "rid": rid})


def test_no_id_and_none_get_one() -> None:
    for payload in ({"text": "x"}, {"text": "x", "rid": None}):
        assert len(prepare(URL, payload).rid) == 32


@pytest.mark.parametrize("width", ["4", [4], {}])
def test_a_beam_width_that_is_no_number_is_named(width: Any) -> None:
    with pytest.raises(PayloadError, match=r"sampling_params\.beam_width"):
        prepare(URL, {"text": "x", "sampling_params": {"beam_width": width}})


def test_every_request_gets_an_id_of_its_own_and_all_are_equally_long() -> None:
    rids = {prepare(URL, {"text": "x"}).rid for _ in range(100)}
    assert len(rids) == 100
    assert {len(rid) for rid in rids} == {32}


def test_urls_of_the_same_server() -> None:
    request = prepare(URL, {"text": "x"})
    assert request.sibling("abort_request") == "http://127.0.0.1:30000/base/abort_request"
    assert request.headers["authorization"] == "Basic dXNlcjpzZWNyZXQ="
    assert "secret" not in repr(request)
    assert request.place == "http://127.0.0.1:30000/base/generate"
    assert prepare("/generate", {"text": "x"}).place == "/generate"


def test_workers_by_name_or_as_objects() -> None:
    body = b'{"workers": [{"url": "http://a:1/"}, "http://b:2", {"id": 3}, null]}'
    assert worker_urls(200, body, "here") == ["http://a:1/abort_request", "http://b:2/abort_request"]


def test_a_transport_error_is_what_it_says() -> None:
    error = TransportError("gone", status_code=503, body=b"x", retryable=True)
    assert isinstance(error, StreamError)
    assert isinstance(error, OSError)
    assert str(error) == "gone"
    again = pickle.loads(pickle.dumps(error))
    assert again.__dict__ == error.__dict__
    assert (TransportError().status_code, TransportError().body, TransportError().partial) == (None, b"", {})


def test_times_between_tokens_are_kept_by_output() -> None:
    metrics = StreamMetrics()
    metrics.request_started(10.0)
    metrics.received(11.0, 5, [Update(token_ids=())])
    assert metrics.ttft is None
    metrics.received(12.0, 5, [Update(token_ids=(1,)), Update(index=1, token_ids=(2, 3))])
    metrics.received(12.5, 5, [Update(token_ids=(4,), start=1), Update(token_ids=(5,), start=2)])
    metrics.received(15.0, 5, [Update(index=1, token_ids=(6,), start=2)])
    assert metrics.ttft == 2.0
    assert list(metrics.inter_token_times) == [0.5, 0.0, 3.0]
    assert (metrics.tokens, metrics.events, metrics.bytes) == (6, 6, 20)
    assert metrics.elapsed == 5.0
