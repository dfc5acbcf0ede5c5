"""What every transport must do with a server that behaves: the same, whichever client carries the bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ssefold import PayloadError, Update
from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel, Script
from tests.transports.stacks import AnyioClient, BoundClient, Stack, read

Serve = Callable[..., FakeSGLang]

PROMPT = [11, 12, 13, 14, 15]
ASK: dict[str, Any] = {
    "input_ids": PROMPT,
    "sampling_params": {"max_new_tokens": 24, "temperature": 0.0},
    "return_logprob": True,
    "return_routed_experts": True,
}


def check(outputs: Any, truth: list[Script]) -> None:
    """The outputs are what the server generated."""
    assert sorted(outputs) == list(range(len(truth)))
    for index, script in enumerate(truth):
        output = outputs[index]
        assert tuple(output.token_ids) == script.token_ids
        assert tuple(output.logprobs) == (script.logprobs or ())
        assert output.finish_reason is not None
        assert output.finish_reason.raw == script.finish.reason


def fold(updates: list[Update]) -> dict[int, list[int]]:
    """What somebody who only applies updates holds."""
    held: dict[int, list[int]] = {}
    for update in updates:
        ids = held.setdefault(update.index, [])
        if update.replace:
            ids.clear()
        assert update.start == len(ids)
        ids.extend(update.token_ids)
    return held


@pytest.mark.parametrize(
    ("profile", "interval"), [("0.5.23", 1), ("0.5.23-incremental", 8), ("0.5.10-incremental", 1), ("0.5.5", 1)]
)
def test_every_token_comes_once(stack: Stack, serve: Serve, profile: str, interval: int) -> None:
    server = serve(profile=profile, interval=interval)

    async def test(client: BoundClient) -> list[Update]:
        async with client.generate(server.url + "/generate", ASK) as stream:
            updates = await read(stream)
        check(stream.outputs, server.truth(ASK))
        return updates

    assert fold(stack.run(test)) == {0: list(server.truth(ASK)[0].token_ids)}


@pytest.mark.parametrize(
    "ask",
    [
        {**ASK, "sampling_params": {"max_new_tokens": 9, "n": 3}},
        {**ASK, "input_ids": [[1, 2], [3, 4, 5], [6]]},
        {**ASK, "input_ids": [[7, 8]]},
        {"text": ["a", "b\u2028"], "sampling_params": {"max_new_tokens": 5, "n": 2}},
        {**ASK, "input_ids": [[1], [2]], "sampling_params": [{"max_new_tokens": 3}, {"max_new_tokens": 11}]},
        {"text": "only text", "sampling_params": {"max_new_tokens": 7}},
        {"text": "nothing new", "sampling_params": {"max_new_tokens": 1}},
    ],
    ids=["n=3", "batch", "batch of one", "batch with n=2", "own parameters", "text", "one token"],
)
@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental"])
def test_outputs_come_by_index(stack: Stack, serve: Serve, profile: str, ask: dict[str, Any]) -> None:
    server = serve(profile=profile)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ask))

    stack.run(test)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(pieces=3),
        Fault(drip=1),
        Fault(junk=b": keep-alive\n\n"),
        Fault(junk=b":\r\n\r\n", pieces=9),
        Fault(padding=2**21, pieces=1),
        Fault(gzip=True),
        Fault(no_done=True),
        Fault(content_type="Text/Event-Stream"),
    ],
    ids=["pieces", "byte by byte", "comments", "comments in pieces", "giant", "gzip", "no [DONE]", "type"],
)
def test_bytes_may_come_in_any_way(stack: Stack, serve: Serve, fault: Fault) -> None:
    server = serve(fault=fault, profile="0.5.23-incremental")
    ask = {**ASK, "sampling_params": {"max_new_tokens": 6 if fault.drip else 24}}

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ask))

    stack.run(test)


def test_a_terminal_chunk_of_17_megabytes_passes(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(padding=17 * 10**6))
    ask = {**ASK, "sampling_params": {"max_new_tokens": 2}}

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            updates = await read(stream)
        assert len(updates[-1].meta_info["padding"]) == 17 * 10**6

    stack.run(test)


def test_collect_gives_what_the_same_request_gives_without_streaming(stack: Stack, serve: Serve) -> None:
    server = serve(model=GreedyModel(stop_every=12), profile="0.5.23-incremental")
    for ask in (ASK, {**ASK, "input_ids": [[5], [6, 7]]}):

        async def test(client: BoundClient, ask: dict[str, Any] = ask) -> dict[int, dict[str, Any]]:
            return await client.collect(server.url + "/generate", {**ask, "rid": "same"})

        whole = server.response({**ask, "rid": "same"})
        expected = dict(enumerate(whole)) if isinstance(whole, list) else {0: whole}
        assert stack.run(test) == expected


def test_resuming_goes_on_where_it_was(stack: Stack, server: FakeSGLang) -> None:
    truth = server.truth(ASK)[0]

    async def test(client: BoundClient) -> None:
        for split in (1, 10, 23):
            first = {**ASK, "sampling_params": {"max_new_tokens": split}}
            got = list((await client.collect(server.url + "/generate", first))[0]["output_ids"])
            rest = {**ASK, "input_ids": PROMPT + got, "sampling_params": {"max_new_tokens": 24 - split}}
            got += (await client.collect(server.url + "/generate", rest))[0]["output_ids"]
            assert tuple(got) == truth.token_ids

    stack.run(test)


def test_payload_and_headers_are_the_callers(stack: Stack, server: FakeSGLang) -> None:
    ask = copy.deepcopy(ASK)
    headers = {"X-SMG-Routing-Key": "s1", "accept": "text/html", "Accept-Encoding": "br", "Authorization": "Bearer t"}
    kept = dict(headers)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask, headers=headers) as stream:
            await read(stream)
            assert len(stream.rid) == 32

    stack.run(test)
    assert (ask, headers) == (ASK, kept)
    seen = server.seen[0]
    assert seen.json == {**ASK, "stream": True, "rid": seen.json["rid"]}
    assert len(seen.json["rid"]) == 32
    assert seen.headers["accept"] == "text/event-stream"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-smg-routing-key"] == "s1"
    assert seen.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("payload", "options", "sent"),
    [
        ({}, {"rid": "mine"}, "mine"),
        ({"rid": "yours"}, {}, "yours"),
        ({"rid": "yours"}, {"rid": "mine"}, "mine"),
        ({"rid": ["a", "b"], "input_ids": [[1], [2]]}, {}, ["a", "b"]),
    ],
)
def test_an_id_that_was_given_is_the_one_sent(
    stack: Stack, server: FakeSGLang, payload: dict[str, Any], options: dict[str, Any], sent: Any
) -> None:
    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", {**ASK, **payload}, **options) as stream:
            await read(stream)
            assert stream.rid == (tuple(sent) if isinstance(sent, list) else sent)

    stack.run(test)
    assert server.seen[0].json["rid"] == sent


def test_connections_are_reused_after_a_whole_stream(stack: Stack, server: FakeSGLang) -> None:
    if stack.name.startswith("anyio"):
        pytest.skip("this transport has a connection for every request")

    async def test(client: BoundClient) -> None:
        for _ in range(3):
            async with client.generate(server.url + "/generate", ASK) as stream:
                await read(stream)

    stack.run(test)
    assert server.counters.accepted == 1


def test_an_endless_body_ends_after_done(async_stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(endless=True))

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK, abort_timeout=0.05) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ASK))

    async_stack.run(test)


def test_an_endless_body_ends_with_the_idle_timeout_of_a_blocking_client(serve: Serve) -> None:
    pytest.importorskip("httpx", reason="the blocking client is httpx")
    server = serve(fault=Fault(endless=True))

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK, idle_timeout=0.1) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ASK))

    Stack("httpx-sync").run(test)


def test_metrics_count_what_came(stack: Stack, serve: Serve) -> None:
    server = serve(profile="0.5.23-incremental")

    async def test(client: BoundClient) -> None:
        async with client.generate(
            server.url + "/generate", {**ASK, "sampling_params": {"max_new_tokens": 6}}
        ) as stream:
            assert stream.metrics.ttft is None
            await read(stream)
        metrics = stream.metrics
        assert (metrics.tokens, metrics.events, metrics.attempts) == (6, 6, 1)
        assert metrics.bytes == server.counters.bytes_sent
        assert metrics.ttft is not None
        assert 0 < metrics.ttft <= metrics.elapsed
        assert len(metrics.inter_token_times) == 5
        assert min(metrics.inter_token_times) >= 0
        assert "tokens=6" in repr(metrics)

    stack.run(test)


def test_the_hook_hears_what_happens_in_order(
    stack: Stack, server: FakeSGLang, events: list[tuple[str, dict[str, Any]]]
) -> None:
    async def test(client: BoundClient) -> None:
        url = server.url + "/generate"
        async with client.generate(url, ASK, on_event=lambda name, data: events.append((name, dict(data)))) as stream:
            await read(stream)
        assert events[0][1] == {"url": url, "rid": stream.rid, "attempt": 1}

    stack.run(test)
    assert [name for name, _ in events] == ["request", "response", "first_token", "close"]
    assert events[1][1] == {"status": 200, "attempt": 1}
    assert events[3][1]["complete"] is True
    assert events[3][1]["error"] is None


def test_a_failing_hook_fails_nothing_else(stack: Stack, server: FakeSGLang, caplog: pytest.LogCaptureFixture) -> None:
    def hook(name: str, data: Any) -> None:
        raise RuntimeError(f"the hook failed at {name}")

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK, on_event=hook) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ASK))

    stack.run(test)
    assert "the hook failed at request" in caplog.text


def test_nothing_is_sent_before_the_block(stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK)
        with pytest.raises(RuntimeError, match="enter the stream first"):
            await stream.__anext__()
        with pytest.raises(RuntimeError, match="enter the stream first"):
            await stream.abort()
        await stream.aclose()

    stack.run(test)
    assert server.counters.requests == 0


def test_a_stream_is_entered_once_and_read_in_its_block(stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK)
        async with stream:
            await stream.__anext__()
            with pytest.raises(RuntimeError, match="entered once"):
                await stream.__aenter__()
        await stream.aclose()
        with pytest.raises(RuntimeError, match="is closed"):
            await read(stream)
        with pytest.raises(RuntimeError, match="entered once"):
            await stream.__aenter__()

    stack.run(test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_cancel": "kill"}, "on_cancel"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"idle_timeout": float("nan")}, "idle_timeout"),
        ({"abort_timeout": -1}, "abort_timeout"),
        ({"retries": -1}, "retries"),
        ({"rid": ""}, "rid"),
        ({"mode": "both"}, "mode"),
        ({"on_bad_json": "ignore"}, "on_bad_json"),
        ({"max_event_size": 0}, "max_event_size"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnyioClient().generate("http://127.0.0.1:1/generate", ASK, **options)


@pytest.mark.parametrize("payload", [[1, 2], {"text": {1, 2}}, {"text": float("nan")}, "text", None])
def test_a_payload_that_can_not_be_sent_is_refused_at_once(payload: Any) -> None:
    with pytest.raises(PayloadError, match="payload"):
        AnyioClient().generate("http://127.0.0.1:1/generate", payload)


def test_an_unknown_option_is_a_mistake(stack: Stack) -> None:
    async def test(client: BoundClient) -> None:
        with pytest.raises(TypeError, match="retrys"):
            client.generate("http://127.0.0.1:1/generate", ASK, retrys=3)

    stack.run(test)
