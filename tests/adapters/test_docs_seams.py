"""The blocks of the pages for other frameworks work, against stand-ins of the frameworks and a fake server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel
from tests.test_docs import blocks_of

pytest.importorskip("httpx", reason="the blocks use httpx")
np: Any = pytest.importorskip("numpy", reason="it stands in for torch")

DOCS = Path(__file__).resolve().parents[2] / "docs"
STANDINS = Path(__file__).parent / "standins"
PROMPT = [11, 12, 13]


class Tokenizer:
    def apply_chat_template(self, messages: list[dict[str, Any]], add_generation_prompt: bool) -> list[int]:
        assert add_generation_prompt
        assert all(isinstance(message["content"], str) for message in messages)
        return list(PROMPT)


@dataclass
class Fields:
    """Any class that takes its fields by name."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.fixture
def servers() -> Iterator[list[FakeSGLang]]:
    """Two servers of the same weights; the first one dies in the middle of the first answer."""
    both = [FakeSGLang(GreedyModel(3)), FakeSGLang(GreedyModel(3), profile="0.5.23-incremental")]
    for server in both:
        server.start()
    both[0].fault_next(Fault(cut_at=2500))
    yield both
    for server in both:
        server.stop()


def run_block(page: str, name: str) -> dict[str, Any]:
    """Run the block under the heading ``name`` of a page; returns its names."""
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    [code] = [found.code for found in blocks_of(section) if found.language == "python"]
    namespace: dict[str, Any] = {"__name__": "seam"}
    exec(compile(code, f"{page}: {name}", "exec"), namespace)
    return namespace


def block(name: str, monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> dict[str, Any]:
    """The same with these modules."""
    for path, names in modules.items():
        parts = path.replace("__", ".").split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        sys.modules[".".join(parts)].__dict__.update(names)
    return run_block("adapters-writing-your-own.md", name)


@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-ins are importable by the frameworks' names."""
    monkeypatch.syspath_prepend(str(STANDINS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("areal", "nemo_rl")]:
        del sys.modules[name]


def truth(server: FakeSGLang, limit: int = 20, prompt: list[int] = PROMPT) -> Any:
    payload = {"input_ids": prompt, "sampling_params": {"max_new_tokens": limit}, "return_logprob": True}
    [script] = server.truth(payload)
    return script


def test_verl(monkeypatch: pytest.MonkeyPatch, servers: list[FakeSGLang]) -> None:
    class AgentLoopBase:
        tokenizer = Tokenizer()
        rollout = SimpleNamespace(response_length=20)
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))

    names = {
        "AgentLoopBase": AgentLoopBase,
        "AgentLoopMetrics": Fields,
        "AgentLoopOutput": Fields,
        "register": lambda name: lambda loop: loop,
    }
    found = block("verl", monkeypatch, verl__experimental__agent_loop__agent_loop=names)
    loop = found["StreamedAgentLoop"]()
    loop.endpoints = [server.url for server in servers]
    messages = [{"role": "user", "content": "hi"}]
    output = asyncio.run(loop.run({"temperature": 0.0, "top_p": 1.0, "logprobs": True}, raw_prompt=messages))
    script = truth(servers[0])
    assert output.prompt_ids == PROMPT
    assert tuple(output.response_ids) == script.token_ids
    assert tuple(output.response_logprobs) == script.logprobs
    assert output.response_mask == [1] * 20


# What happens to a call: nothing, a cut in the middle, an abort by the server, no connection, overload.
MISHAPS: dict[str, Fault | None] = {
    "none": None,
    "cut": Fault(cut_at=2500),
    "reset": Fault(cut_at=2500, cut="rst"),
    "closed without a word": Fault(refuse=True),
    "overloaded": Fault(overloaded=True),
    "aborted": None,
}


async def through(mishap: str, server: FakeSGLang, call: Any, abort: Any) -> Any:
    if mishap != "aborted":
        return await call()
    server.hold(after=9)
    task = asyncio.ensure_future(call())
    await asyncio.to_thread(server.wait_until, lambda counters: counters.tokens >= 9)
    await abort()
    server.release()
    return await task


def asked(server: FakeSGLang) -> list[dict[str, Any]]:
    return [seen.json for seen in server.seen if seen.path == "/generate"]


def areal() -> tuple[Any, Any]:
    return (
        import_module("areal.api.io_struct").ModelRequest,
        import_module("areal.infra.remote_inf_engine").RemoteInfEngine,
    )


@pytest.mark.usefixtures("standins")
@pytest.mark.parametrize("profile", ["0.5.9", "0.5.23", "0.5.23-incremental"])
@pytest.mark.parametrize("mishap", MISHAPS)
def test_areal(monkeypatch: pytest.MonkeyPatch, mishap: str, profile: str) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="AReaL's client is aiohttp's")
    request_of, engine_of = areal()

    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(min(seconds, 0.01)))
    run_block("adapters-areal-nemo-rl.md", "AReaL")
    with FakeSGLang(GreedyModel(3), profile=profile) as server:
        if (fault := MISHAPS[mishap]) is not None:
            server.fault_next(fault)

        async def ask() -> Any:
            async with aiohttp.ClientSession() as session:
                engine = engine_of(server.url.removeprefix("http://"), session)
                return await through(mishap, server, lambda: engine.agenerate(request_of(list(PROMPT))), engine.pause)

        response = asyncio.run(ask())
        script = truth(server, 24)
        requests = asked(server)
    assert tuple(response.output_tokens) == script.token_ids
    assert tuple(response.output_logprobs) == script.logprobs
    assert (response.input_tokens, response.stop_reason, len(response.output_versions)) == (PROMPT, "length", 24)
    assert len(requests) == 1 + (mishap != "none")
    assert all(payload["stream"] for payload in requests)
    if mishap in ("cut", "reset", "aborted"):
        assert len(requests[1]["input_ids"]) > len(PROMPT)


@pytest.mark.usefixtures("standins")
def test_areal_without_streaming() -> None:
    """Routed experts, and requests of other kinds."""
    aiohttp = pytest.importorskip("aiohttp", reason="AReaL's client is aiohttp's")
    request_of, engine_of = areal()

    run_block("adapters-areal-nemo-rl.md", "AReaL")
    with FakeSGLang(GreedyModel(3)) as server:

        async def ask() -> Any:
            async with aiohttp.ClientSession() as session:
                engine = engine_of(server.url.removeprefix("http://"), session)
                request = request_of(list(PROMPT), metadata={"return_routed_experts": True})
                return await engine.agenerate(request)

        assert tuple(asyncio.run(ask()).output_tokens) == truth(server, 24).token_ids
        assert [payload["stream"] for payload in asked(server)] == [False]


@pytest.mark.usefixtures("standins")
@pytest.mark.parametrize("mishap", MISHAPS)
def test_nemo_rl(mishap: str) -> None:
    generation_of = import_module("nemo_rl.sglang_generation").SGLangGeneration

    found = run_block("adapters-areal-nemo-rl.md", "NeMo-RL")
    with FakeSGLang(GreedyModel(3)) as server:
        if (fault := MISHAPS[mishap]) is not None:
            server.fault_next(fault)

        async def ask() -> Any:
            streamed = found["StreamedClient"]()
            generation = generation_of(f"{server.url}/generate", streamed)
            params = {"max_new_tokens": 24, "temperature": 0}
            async with streamed.client as client:

                async def abort() -> None:
                    await client.post(f"{server.url}/abort_request", json={"rid": "", "abort_all": True})

                return await through(
                    mishap, server, lambda: generation.generate_one_sample(params, list(PROMPT), 7), abort
                )

        index, tokens, logprobs, truncated = asyncio.run(ask())
        script = truth(server, 24)
    assert (index, tuple(tokens), tuple(logprobs), truncated) == (7, script.token_ids, script.logprobs, True)


def test_strands(monkeypatch: pytest.MonkeyPatch, servers: list[FakeSGLang]) -> None:
    found = block("strands", monkeypatch, strands__models={"Model": object})
    params = {"max_new_tokens": 20, "temperature": 0}
    model = found["StreamedModel"](f"{servers[1].url}/generate", Tokenizer(), {})
    model.update_config(**params)
    assert model.get_config() == params

    async def events() -> list[dict[str, Any]]:
        return [event async for event in model.stream([{"role": "user", "content": [{"text": "hi"}]}])]

    received = asyncio.run(events())
    script = truth(servers[1])
    [sample] = model.samples
    assert sample.token_ids == script.token_ids
    assert [next(iter(event)) for event in (received[0], received[1], received[-2], received[-1])] == [
        "messageStart", "contentBlockStart", "contentBlockStop", "messageStop",
    ]  # fmt: skip
    said = "".join(event["contentBlockDelta"]["delta"]["text"] for event in received[2:-2])
    assert said == sample.text
    assert received[-1] == {"messageStop": {"stopReason": "max_tokens"}}
