"""The blocks of ``docs/adapters-writing-your-own.md`` work, against stand-ins of the frameworks and a fake server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel
from tests.test_docs import blocks_of

pytest.importorskip("httpx", reason="the blocks use httpx")
np: Any = pytest.importorskip("numpy", reason="it stands in for torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters-writing-your-own.md"
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


def block(name: str, monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> dict[str, Any]:
    """Run the block under the heading ``name``, with these modules; returns its names."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    [code] = [found.code for found in blocks_of(section) if found.language == "python"]
    for path, names in modules.items():
        parts = path.replace("__", ".").split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        sys.modules[".".join(parts)].__dict__.update(names)
    namespace: dict[str, Any] = {"__name__": "seam"}
    exec(compile(code, f"{PAGE.name}: {name}", "exec"), namespace)
    return namespace


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


def test_areal(monkeypatch: pytest.MonkeyPatch, servers: list[FakeSGLang]) -> None:
    found = block("AReaL", monkeypatch, areal__api__io_struct={"ModelResponse": Fields})
    wanted = SimpleNamespace(max_new_tokens=20, top_p=1.0, top_k=-1, temperature=1.0, greedy=True)

    async def ask() -> Any:
        engine = found["StreamedEngine"]([server.url.removeprefix("http://") for server in servers])
        async with engine.client:
            return await engine.agenerate(SimpleNamespace(input_ids=PROMPT, gconfig=wanted))

    response = asyncio.run(ask())
    script = truth(servers[0])
    assert tuple(response.output_tokens) == script.token_ids
    assert tuple(response.output_logprobs) == script.logprobs
    assert len(response.output_versions) == 20
    assert (response.input_tokens, response.stop_reason) == (PROMPT, "length")


def test_nemo_rl(monkeypatch: pytest.MonkeyPatch, servers: list[FakeSGLang]) -> None:
    torch = {"tensor": np.array}
    found = block(
        "NeMo-RL", monkeypatch, torch=torch, nemo_rl__distributed__batched_data_dict={"BatchedDataDict": dict}
    )
    prompts = [PROMPT, [21, 22]]
    data = {"input_ids": np.array([PROMPT, [21, 22, 0]]), "input_lengths": np.array([3, 2])}
    params = {"max_new_tokens": 20, "temperature": 0}
    output = found["generate_batch"](data, [server.url for server in servers], params, 0)
    for row, prompt in enumerate(prompts):
        script = truth(servers[0], prompt=prompt)
        end = len(prompt) + 20
        assert output["output_ids"][row].tolist()[:end] == [*prompt, *script.token_ids]
        assert output["logprobs"][row].tolist()[len(prompt) : end] == list(script.logprobs)
    assert output["unpadded_sequence_lengths"].tolist() == [23, 22]
    assert output["generation_lengths"].tolist() == [20, 20]
    assert output["output_ids"].shape == (2, 23)
    assert output["truncated"].tolist() == [True, True]


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
