"""A framework's generate function over a real socket, once or as often as a sample is aborted: what it leaves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from ssefold.transports.testing import PROFILES, Asked, FakeSGLang, GreedyModel, Profile, Routing, Script, Span

#: The servers whose non-streaming response is known.
PLAIN = [name for name, profile in PROFILES.items() if profile.family == "sglang"]
_GREEDY = GreedyModel(3)


def model(asked: Asked) -> Script:
    """Everything that a server can say of a token: kept candidates, weights that change, routing, an indexer."""
    script = _GREEDY(asked)
    ids, count = script.token_ids, len(script.token_ids)
    half = min(count, 5)
    spans = (Span("6", 0, half), *([Span("7", half, count)] if count > half else []))
    positions = (*asked.prompt_ids, *ids)[:-1]
    return replace(
        script,
        sampling_mask=tuple((token, token + 1) for token in ids),
        sampling_logprobs=tuple(-0.25 * (1 + at % 3) for at in range(count)),
        weight_spans=spans,
        indexer_topk=Routing(tuple((token, token + 1, token + 2) * 2 for token in positions), 2, 3),
        terminal_meta={"indexer_topk_num_layers": 2},
        cached_tokens=1,
    )


def support_model(asked: Asked) -> Script:
    """The same where the logprob of every kept candidate is told."""
    script = model(asked)
    return replace(script, sampling_logprobs=tuple((-0.5, -0.75 - at % 2) for at in range(len(script.token_ids))))


def fields_of(sample: Any) -> dict[str, Any]:
    """Every field but the trace, arrays as lists."""
    found = {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample) if field.name != "trace"}
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def runs(
    profile: Profile,
    call: Callable[[FakeSGLang, Any], Awaitable[None]],
    use_client: Callable[[Any], None],
    aborts: Sequence[int],
    writer: Callable[[Asked], Script] = model,
) -> None:
    """Call until the sample is finished; the server aborts the first calls when each has so many tokens."""
    import httpx

    async def exercise(server: FakeSGLang, abort: bool) -> None:
        async with httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
            use_client(client)
            task = asyncio.ensure_future(call(server, client))
            if abort:
                await asyncio.to_thread(server.wait_until, lambda counters: counters.tokens >= tokens)
                await client.post(f"{server.url}/abort_request", json={"rid": "", "abort_all": True})
            await task

    with FakeSGLang(writer, profile=profile) as server:
        tokens = 0
        for after in aborts:
            tokens = server.counters.tokens + after
            server.hold(after=after)
            asyncio.run(exercise(server, abort=True))
            server.release()
        asyncio.run(exercise(server, abort=False))
