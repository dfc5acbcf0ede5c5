"""The fake server: what it sends is what its version sends, and its account is true."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import GenerateDecoder
from ssefold.transports.testing import (
    PROFILES,
    Asked,
    FakeRouter,
    FakeSGLang,
    Fault,
    Finish,
    GreedyModel,
    Script,
    ScriptedModel,
    encode,
    head,
    read_request,
    tail,
)

Serve = Callable[..., FakeSGLang]
ASK: dict[str, Any] = {
    "input_ids": [1, 2, 3],
    "sampling_params": {"max_new_tokens": 12},
    "return_logprob": True,
    "return_routed_experts": True,
    "rid": "r",
    "stream": True,
}


class Caller:
    """A client of the standard library."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=30)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.connection.close()

    def send(self, path: str, payload: Any = None, method: str = "POST") -> http.client.HTTPResponse:
        body = None if payload is None else json.dumps(payload).encode()
        self.connection.request(method, path, body)
        return self.connection.getresponse()

    def text(self, path: str, payload: Any = None, method: str = "POST") -> tuple[int, bytes]:
        response = self.send(path, payload, method)
        return response.status, response.read()


def call(url: str, path: str, payload: Any = None, method: str = "POST") -> tuple[int, bytes]:
    with Caller(url) as caller:
        return caller.text(path, payload, method)


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("profile", [name for name, profile in PROFILES.items() if profile.family == "sglang"])
def test_a_stream_is_what_the_encoder_says(serve: Serve, profile: str, interval: int) -> None:
    server = serve(profile=profile, interval=interval)
    expected = encode(server.truth(ASK), server.profile, interval=interval).data
    assert call(server.url, "/generate", ASK) == (200, expected)


@pytest.mark.parametrize("profile", ["rust", "rust-incremental", "grpc-gateway", "dynamo"])
def test_servers_that_are_not_sglangs_own(serve: Serve, profile: str) -> None:
    server = serve(profile=profile)
    expected = encode(server.truth(ASK), server.profile, listed=False).data
    assert call(server.url, "/generate", ASK) == (200, expected)


@pytest.mark.parametrize("ask", [ASK, {**ASK, "input_ids": [[1], [2]]}, {**ASK, "sampling_params": {"n": 2}}])
def test_without_stream_it_answers_whole(server: FakeSGLang, ask: dict[str, Any]) -> None:
    status, body = call(server.url, "/generate", {**ask, "stream": False})
    answer, expected = json.loads(body), server.response(ask)
    if "n" in ask["sampling_params"]:
        for one in [*answer, *expected]:
            del one["meta_info"]["id"]  # new with every request
    assert (status, answer) == (200, expected)


def test_a_reader_that_is_slower_than_the_scheduler_gets_chunks_joined(serve: Serve) -> None:
    server = serve(profile="0.5.23-incremental", lockstep=False)
    ask = {**ASK, "sampling_params": {"max_new_tokens": 400}}
    decoder = GenerateDecoder()
    updates = decoder.feed(call(server.url, "/generate", ask)[1])
    decoder.close()
    assert tuple(decoder.outputs[0].token_ids) == server.truth(ask)[0].token_ids
    assert 1 <= len(updates) <= 400


def test_aborting_a_running_request_brings_one_more_token(server: FakeSGLang) -> None:
    server.hold(after=4)
    with Caller(server.url) as caller:
        response = caller.send("/generate", ASK)
        server.wait_until(lambda counters: counters.tokens == 4)
        assert call(server.url, "/abort_request", {"rid": "r"}) == (200, b"")
        body = response.read()
    expected = encode(head(server.truth(ASK)[0], 5, Finish.aborted()), server.profile)
    assert body == expected.data
    assert server.counters.aborted == 1


def test_aborting_what_waits_brings_nothing(server: FakeSGLang) -> None:
    server.hold(after=0)
    with Caller(server.url) as caller:
        response = caller.send("/generate", ASK)
        server.wait_until(lambda counters: counters.running == 1)
        call(server.url, "/abort_request", {"rid": "r"})
        assert response.read() == encode(head(server.truth(ASK)[0], 0, Finish.queue_abort()), server.profile).data


@pytest.mark.parametrize(
    ("rid", "abort_all", "stopped"),
    [("r1", False, 2), ("r10", False, 1), ("r", False, 0), ("", False, 0), ("", True, 3), ("unknown", False, 0)],
)
def test_aborts_match_by_prefix_and_only_known_ids(server: FakeSGLang, rid: str, abort_all: bool, stopped: int) -> None:
    """tokenizer_manager.abort_request, then the scheduler's startswith (wire c.6)."""
    server.hold(after=1)
    callers = [Caller(server.url) for _ in range(3)]
    for caller, own in zip(callers, ["r1", "r10", "s"], strict=True):
        caller.send("/generate", {**ASK, "rid": own})
    server.wait_until(lambda counters: counters.tokens == 3)
    call(server.url, "/abort_request", {"rid": rid, "abort_all": abort_all})
    server.wait_until(lambda counters: counters.running == 3 - stopped)
    assert server.counters.aborted == stopped
    for caller in callers:
        caller.connection.close()


@pytest.mark.parametrize(
    ("profile", "frees"), [("0.5.16", True), ("0.5.18", False), ("0.5.19", False), ("0.5.20", True)]
)
def test_a_client_that_goes(serve: Serve, profile: str, frees: bool) -> None:
    server = serve(profile=profile)
    server.hold(after=2)
    with Caller(server.url) as caller:
        caller.send("/generate", ASK)
        server.wait_until(lambda counters: counters.tokens == 2)
    server.wait_until(lambda counters: counters.disconnects == 1)
    assert server.counters.orphans == (0 if server.counters.running == 0 else 1)
    call(server.url, "/abort_request", {"rid": "r"})  # the id is forgotten: too late
    server.release()
    server.wait_until(lambda counters: counters.running == 0)
    assert (server.counters.aborted, server.counters.orphaned) == ((1, 0) if frees else (0, 1))


def test_only_so_many_run_at_once(serve: Serve) -> None:
    server = serve(max_running=1)
    server.hold(after=3)
    callers = [Caller(server.url) for _ in range(3)]
    threads = [
        threading.Thread(target=caller.send, args=("/generate", {**ASK, "rid": str(n)}))
        for n, caller in enumerate(callers)
    ]
    for thread in threads:
        thread.start()
    server.wait_until(lambda counters: counters.running == 3 and counters.tokens == 3)
    server.release()
    for thread in threads:
        thread.join()
    for caller in callers:
        caller.connection.close()
    server.wait_until(lambda counters: counters.running == 0)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"context_length": 3}, {}, "longer than the model's context length"),
        ({}, {"input_ids": None}, "Either text, input_ids"),
        ({}, {"rid": ["a"], "input_ids": [[1], [2]]}, "rids length mismatch"),
        ({}, {"sampling_params": [{"n": 1}, {"n": 2}], "input_ids": [[1], [2]]}, "parallel_sample_num"),
        ({"context_length": 9}, {"sampling_params": {"max_new_tokens": 7}}, "requested a total of 10 tokens: 3 tokens"),
        (
            {"context_length": 9},
            {"input_ids": [[1], [2] * 9], "sampling_params": {}},
            "longer than the model's context",
        ),
        ({}, {"input_ids": []}, "input_ids cannot be empty"),
        ({}, {"sampling_params": {"temperature": -1}}, "temperature must be a non-negative finite number, got -1."),
        ({}, {"sampling_params": {"top_p": 7.0}}, "top_p must be in (0, 1], got 7.0."),
        ({}, {"sampling_params": {"top_k": 0}}, "top_k must be -1 (disable) or at least 1, got 0."),
        ({}, {"sampling_params": {"max_new_tokens": -3}}, "max_new_tokens must be at least 0, got -3."),
        ({}, {"sampling_params": {"max_new_tokens": 3, "min_new_tokens": 4}}, "in [0, max_new_tokens(3)], got 4."),
    ],
)
def test_what_the_server_can_not_serve_is_an_error_inside_the_stream(
    serve: Serve, options: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    server = serve(**options)
    status, body = call(server.url, "/generate", {**ASK, **change})
    assert status == 200
    assert body.endswith(b"data: [DONE]\n\n")
    error = json.loads(body.split(b"\n\n")[0].removeprefix(b"data: "))["error"]
    assert message in error["message"]
    assert error["code"] == 400
    assert call(server.url, "/generate", {**ASK, **change, "stream": False})[0] == 400


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_params": "x"},
        {"sampling_params": [1]},
        {"input_ids": "x"},
        {"text": 5, "input_ids": None},
        {"rid": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_no_request_gets_status_400(server: FakeSGLang, change: dict[str, Any], stream: bool) -> None:
    """And nothing of it is left for ``stop`` to complain about."""
    status, body = call(server.url, "/generate", {**ASK, **change, "stream": stream})
    assert (status, json.loads(body)["code"]) == (400, 400)


@pytest.mark.parametrize("params", [{"n": "2"}, {"max_new_tokens": "5"}, {"top_p": None}], ids=str)
def test_what_the_server_stumbles_over_tears_the_body(server: FakeSGLang, params: dict[str, Any]) -> None:
    with pytest.raises(http.client.IncompleteRead):
        call(server.url, "/generate", {**ASK, "sampling_params": params})
    assert call(server.url, "/generate", {**ASK, "sampling_params": params, "stream": False})[0] == 500


@pytest.mark.parametrize("n", [0, -1])
def test_less_than_one_sample_is_one(server: FakeSGLang, n: int) -> None:
    [event, *_] = call(server.url, "/generate", {**ASK, "sampling_params": {"max_new_tokens": 1, "n": n}})[1].split(
        b"\n\n"
    )
    chunk = json.loads(event.removeprefix(b"data: "))
    assert len(chunk["output_ids"]) == 1
    assert "index" not in chunk


def test_without_a_limit_the_context_is_the_limit(serve: Serve) -> None:
    server = serve(context_length=20)
    for params in ({}, {"max_new_tokens": None}, {"max_new_tokens": 17}):
        [script] = server.truth({**ASK, "sampling_params": params})
        assert script.finish == Finish.length(15)


def test_an_id_in_use_is_refused(server: FakeSGLang) -> None:
    server.hold(after=1)
    with Caller(server.url) as caller:
        caller.send("/generate", ASK)
        server.wait_until(lambda counters: counters.running == 1)
        assert b"Duplicate request ID" in call(server.url, "/generate", ASK)[1]


@pytest.mark.parametrize(
    ("start", "reason"), [(4, "=4 is higher than the number of input tokens"), (-1, "=-1 is lower")]
)
def test_routed_experts_from_a_place_outside_the_prompt(server: FakeSGLang, start: int, reason: str) -> None:
    """The scheduler goes on with the prompt [0], and sends the one row of it."""
    body = call(server.url, "/generate", {**ASK, "routed_experts_start_len": start})[1]
    chunk = json.loads(body.split(b"\n\n")[0].removeprefix(b"data: "))
    meta = chunk["meta_info"]
    assert (meta["finish_reason"]["type"], meta["finish_reason"]["status_code"]) == ("abort", 400)
    assert f"recv_req.routed_experts_start_len{reason}" in meta["finish_reason"]["message"]
    assert (meta["prompt_tokens"], len(chunk["output_ids"]), meta["output_token_logprobs"]) == (1, 1, [])
    assert len(base64.b64decode(meta["routed_experts"])) == 4 * 2 * 4
    decoder = GenerateDecoder()
    assert [update.token_ids for update in decoder.feed(body)] == [()]
    assert decoder.outputs[0].routed_experts is None


def test_the_other_endpoints(serve: Serve) -> None:
    server = serve(profile="0.5.20-incremental", interval=4)
    info = {
        "version": "0.5.20",
        "incremental_streaming_output": True,
        "skip_tokenizer_init": False,
        "stream_interval": 4,
    }
    for path in ("/server_info", "/get_server_info"):
        assert json.loads(call(server.url, path, method="GET")[1]) == info
    assert json.loads(call(server.url, "/workers", method="GET")[1]) == {"workers": [{"url": server.url}]}
    assert call(server.url, "/health", method="GET") == (200, b"")
    assert call(server.url, "/nothing", method="GET")[0] == 404
    assert call(server.url, "/generate", [1])[0] == 400
    assert [seen.path for seen in server.seen][-1] == "/generate"


def test_bodies_that_are_no_json_and_bodies_in_chunks(server: FakeSGLang) -> None:
    with Caller(server.url) as caller:
        caller.connection.request("POST", "/generate", b"{")
        response = caller.connection.getresponse()
        assert (response.status, response.read()) == (400, b'{"error":"the body is not JSON"}')
        data = json.dumps(ASK).encode()
        caller.connection.request("POST", "/generate", iter([data[:9], data[9:]]), encode_chunked=True)
        assert caller.connection.getresponse().read() == encode(server.truth(ASK), server.profile).data


def test_waiting_in_vain_says_how_things_stand(server: FakeSGLang) -> None:
    with pytest.raises(TimeoutError, match="tokens=0"):
        server.wait_until(lambda counters: counters.tokens == 1, timeout=0.01)


def test_stopping_leaves_no_thread_and_no_socket() -> None:
    threads = threading.active_count()
    server = FakeSGLang()
    with server:
        server.hold(after=1)
        caller = Caller(server.url)
        caller.send("/generate", ASK)
        server.wait_until(lambda counters: counters.tokens == 1)
        host, _, port = server.url.removeprefix("http://").partition(":")
    assert threading.active_count() == threads
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)))
    caller.connection.close()
    server.stop()
    with pytest.raises(RuntimeError, match="started before"):
        server.start()


def test_a_model_that_fails_is_heard_of() -> None:
    def model(asked: Asked) -> Script:
        raise ZeroDivisionError

    server = FakeSGLang(model)
    server.start()
    with pytest.raises((http.client.HTTPException, OSError)):
        call(server.url, "/generate", ASK)
    with pytest.raises(ZeroDivisionError):
        server.stop()


def test_a_server_that_was_not_started() -> None:
    server = FakeSGLang()
    server.stop()
    with pytest.raises(RuntimeError, match="not running"):
        server.hold()


def test_a_router_passes_on_and_names_its_workers(serve: Serve) -> None:
    workers = [serve(), serve()]
    with FakeRouter(workers) as router:
        expected = encode(workers[0].truth(ASK), workers[0].profile).data
        for _ in range(3):
            assert call(router.url, "/generate", ASK) == (200, expected)
        assert json.loads(call(router.url, "/workers", method="GET")[1]) == {
            "workers": [{"url": worker.url} for worker in workers]
        }
        assert call(router.url, "/abort_request", {"rid": "r"})[0] == 404
        assert router.forwarded == 3
    assert [worker.counters.requests for worker in workers] == [2, 1]


class TestModels:
    @given(
        prompt=st.lists(st.integers(0, 511), max_size=6),
        tokens=st.integers(1, 30),
        split=st.integers(0, 29),
        stop_every=st.sampled_from([0, 5]),
    )
    def test_a_greedy_model_goes_on_from_any_part_of_its_answer(
        self, prompt: list[int], tokens: int, split: int, stop_every: int
    ) -> None:
        model = GreedyModel(stop_every=stop_every)
        asked = Asked(
            rid="r",
            prompt_ids=tuple(prompt),
            max_new_tokens=tokens,
            return_logprob=True,
            top_logprobs_num=2,
            return_top_p=True,
            return_routed_experts=True,
        )
        whole = model(asked)
        split = min(split, len(whole.token_ids) - 1)
        grown = asked.prompt_ids + whole.token_ids[:split]
        rest = model(replace(asked, prompt_ids=grown, max_new_tokens=tokens - split))
        expected = tail(whole, split)
        if expected.finish.reason == {"type": "length", "length": tokens}:
            expected = replace(expected, finish=Finish.length(tokens - split))
        assert rest == expected

    def test_a_scripted_model_goes_on_too(self, serve: Serve) -> None:
        script = GreedyModel()(Asked(rid="", prompt_ids=(1, 2), max_new_tokens=8, return_logprob=True))
        other = replace(script, prompt_ids=(9,))
        server = serve(ScriptedModel(script, other))
        ask = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 5}, "return_logprob": True}
        [first] = server.truth(ask)
        assert first.token_ids == script.token_ids[:5]
        assert first.finish == Finish.length(5)
        [rest] = server.truth({**ask, "input_ids": [1, 2, *first.token_ids], "sampling_params": {}})
        assert rest.token_ids == script.token_ids[5:]
        assert rest.finish == script.finish
        [stranger] = server.truth({**ask, "input_ids": [77]})
        assert stranger.prompt_ids == (77,)
        [bare] = server.truth({"input_ids": [9]})
        assert (bare.logprobs, bare.routed_experts, bare.top_p_rows) == (None, None, ())

    def test_a_scripted_model_needs_a_script(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            ScriptedModel()

    def test_outputs_are_numbered_prompt_by_prompt(self) -> None:
        request = read_request({"text": ["a", "b"], "sampling_params": {"n": 2}, "rid": "r"})
        assert [(asked.prompt_ids, asked.sample) for asked in request.outputs] == [
            ((97,), 0),
            ((97,), 1),
            ((98,), 0),
            ((98,), 1),
        ]
        assert len({asked.rid for asked in request.outputs}) == 4
        assert all(asked.rid not in ("r", "r_0", "r_1") for asked in request.outputs)

    def test_faults_may_depend_on_the_request(self, serve: Serve) -> None:
        server = serve(fault=lambda payload: Fault(status=500 if payload["rid"] == "bad" else 200))
        assert call(server.url, "/generate", {**ASK, "rid": "bad"})[0] == 500
        assert call(server.url, "/generate", {**ASK, "rid": "good"})[0] == 200
