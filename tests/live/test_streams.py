"""Streams that run to their end: token for token and logprob for logprob what the scheduler sent."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import ProtocolError, Update
from tests.live.asks import PATIENCE, PROMPTS, Held, ask, check_all, rid_of, saying
from tests.live.server import LiveServer, Mode
from tests.transports.stacks import BoundClient, Stack, read

TEXT = "Hello, world! Äpfel über Straße. Привет, 你好 😀 done"

SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "single": ({}, 1),
    "batch of one": ({"prompt": PROMPTS[:1]}, 1),
    "n=2": ({"n": 2}, 2),
    "batch": ({"prompt": PROMPTS}, 3),
    "batch with ids": ({"prompt": PROMPTS[:2], "rid": ["left-0001", "right-001"]}, 2),
    "batch with n=2": ({"prompt": PROMPTS[:2], "n": 2}, 4),
}


async def whole(client: BoundClient, server: LiveServer, payload: dict[str, Any], **options: Any) -> Any:
    """The stream after its end, and its updates."""
    async with client.generate(server.generate, payload, **PATIENCE, **options) as stream:
        updates = await read(stream)
    return stream, updates


@pytest.mark.parametrize("interval", [1, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_token_comes_once(stack: Stack, live: LiveServer, shape: str, interval: int) -> None:
    more, count = SHAPES[shape]
    if "rid" in more:  # the server's ids live on in its log
        more = {**more, "rid": [f"{rid}-{stack}-{interval}" for rid in more["rid"]]}
    payload = ask(27, interval=interval, **more)

    async def test(client: BoundClient) -> list[Update]:
        stream, updates = await whole(client, live, payload)
        check_all(live, stream.outputs, count)
        Held(updates).check(stream.outputs)
        return updates  # type: ignore[no-any-return]

    updates = stack.run(test)
    if interval == 8:
        assert len(updates) <= count * 5  # the first token, then eight at a time, then what is left


@pytest.mark.parametrize("shape", ["single", "n=2"])
def test_a_stated_mode_holds(stack: Stack, live: LiveServer, mode: Mode, shape: str) -> None:
    more, count = SHAPES[shape]

    async def test(client: BoundClient) -> None:
        stream, _ = await whole(client, live, ask(20, **more), mode=mode)
        check_all(live, stream.outputs, count)

    stack.run(test)


def test_the_other_mode_is_refused(stack: Stack, live: LiveServer, mode: Mode) -> None:
    other = "cumulative" if mode == "incremental" else "incremental"

    async def test(client: BoundClient) -> None:
        with pytest.raises(ProtocolError, match=mode):
            await whole(client, live, ask(20), mode=other)

    stack.run(test)


def test_collect_is_the_answer_without_a_stream(stack: Stack, live: LiveServer) -> None:
    """Greedy and steered, so that both requests get the same tokens."""
    if live.processor is None:
        pytest.skip("needs the folder's clp.txt")
    payload = saying(live, range(260, 290), max_new_tokens=30, ignore_eos=True)

    async def test(client: BoundClient) -> dict[str, Any]:
        return (await client.collect(live.generate, payload, **PATIENCE))[0]

    streamed, native = stack.run(test), live.answer(payload)
    assert streamed["output_ids"] == native["output_ids"] == list(range(260, 290))
    assert streamed["text"] == native["text"]
    varies = {"id", "e2e_latency", "response_sent_to_client_ts", "output_token_logprobs"}
    kept = {key: value for key, value in native["meta_info"].items() if key not in varies}
    assert {key: value for key, value in streamed["meta_info"].items() if key not in varies} == kept
    assert [row[1:] for row in streamed["meta_info"]["output_token_logprobs"]] == [
        row[1:] for row in native["meta_info"]["output_token_logprobs"]
    ]


@pytest.mark.parametrize("interval", [1, 8])
def test_text_comes_whole(stack: Stack, live: LiveServer, interval: int) -> None:
    """Its characters are of one to four bytes, and most of the long ones are several tokens."""
    if live.processor is None:
        pytest.skip("needs the folder's clp.txt")
    ids = live.tokenize(TEXT)
    payload = saying(live, [*ids, 2], max_new_tokens=200, stream_interval=interval)

    async def test(client: BoundClient) -> None:
        stream, updates = await whole(client, live, payload)
        check_all(live, stream.outputs)
        Held(updates).check(stream.outputs)
        output = stream.outputs[0]
        assert list(output.token_ids) == [*ids, 2]
        assert output.text() == TEXT
        assert output.finish_reason.matched == 2

    stack.run(test)


def test_a_stop_string_is_cut_from_the_text_alone(stack: Stack, live: LiveServer) -> None:
    if live.processor is None:
        pytest.skip("needs the folder's clp.txt")
    payload = saying(live, live.tokenize("one two STOP three"), max_new_tokens=60, stop=["STOP"])

    async def test(client: BoundClient) -> None:
        stream, updates = await whole(client, live, payload)
        check_all(live, stream.outputs)
        Held(updates).check(stream.outputs)
        assert stream.outputs[0].text() == "one two "
        assert stream.outputs[0].finish_reason.matched == "STOP"

    stack.run(test)


def test_one_token_tells_no_mode(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        stream, _ = await whole(client, live, ask(1))
        check_all(live, stream.outputs)

    stack.run(test)


def test_top_logprobs_stand_beside_their_tokens(stack: Stack, live: LiveServer) -> None:
    payload = ask(20, top_logprobs_num=3, token_ids_logprob=[7, 8], logprob_start_len=0)

    async def test(client: BoundClient) -> None:
        stream, _ = await whole(client, live, payload)
        check_all(live, stream.outputs)
        output = stream.outputs[0]
        meta = output.native_response()["meta_info"]
        assert len(meta["output_top_logprobs"]) == len(meta["output_token_ids_logprobs"]) == 20
        assert [row[1] for row in meta["input_token_logprobs"]] == PROMPTS[0]
        assert meta["output_top_logprobs"] == live.truth.sent(rid_of(output)).top_logprobs

    stack.run(test)


def test_without_logprobs_the_ids_are_whole(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        stream, updates = await whole(client, live, {**ask(30, n=2), "return_logprob": False})
        assert all(not output.logprobs for output in stream.outputs.values())
        for index, output in stream.outputs.items():
            sent = live.truth.sent(rid_of(output))
            assert list(output.token_ids) == sent.token_ids
            assert [
                token for update in updates if update.index == index for token in update.token_ids
            ] == sent.token_ids

    stack.run(test)
