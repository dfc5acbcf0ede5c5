"""Requests for the tests, and what their streams are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ssefold import Update
from tests.live.server import LiveServer

PROMPTS = [[42, 431], [5, 6, 7, 8], [300, 301, 302]]

# All weights are random and small, so that every token would have the same logprob and a shifted row went unnoticed.
BIAS = {str(token): (token * 37 % 101) / 20 for token in range(3, 512)}

PATIENCE: dict[str, Any] = {"idle_timeout": 120.0, "abort_timeout": 60.0}
"""Options of every stream: the machine may be busy."""


def ask(
    tokens: int, *, prompt: Any = None, n: int | None = None, interval: int | None = None, **more: Any
) -> dict[str, Any]:
    """So many tokens, drawn at random, each with a logprob of its own."""
    sampling: dict[str, Any] = {
        "max_new_tokens": tokens,
        "temperature": 1.0,
        "ignore_eos": True,
        "logit_bias": BIAS,
    }
    if n is not None:
        sampling["n"] = n
    if interval is not None:
        sampling["stream_interval"] = interval
    return {"input_ids": prompt or PROMPTS[0], "return_logprob": True, "sampling_params": sampling, **more}


def saying(server: LiveServer, token_ids: Iterable[int], **sampling: Any) -> dict[str, Any]:
    """Exactly these tokens, then whatever comes, up to the sampling parameters' limits."""
    params = {"temperature": 0.0, "custom_params": {"script": list(token_ids)}, **sampling}
    return {
        "input_ids": PROMPTS[1],
        "return_logprob": True,
        "custom_logit_processor": server.processor,
        "sampling_params": params,
    }


def rid_of(output: Any) -> str:
    rid: str = output.meta_info["id"]
    return rid


def check_all(server: LiveServer, outputs: Mapping[int, Any], count: int = 1) -> None:
    """Every output has ended, and is what the scheduler sent: tokens, logprobs, reason and routing."""
    assert sorted(outputs) == list(range(count))
    for output in outputs.values():
        sent = server.truth.sent(rid_of(output))
        assert list(output.token_ids) == sent.token_ids
        assert list(output.logprobs) == sent.logprobs
        assert output.finish_reason is not None
        assert output.finish_reason.raw == sent.finish
        assert output.meta_info["completion_tokens"] == len(sent.token_ids)
        assert output.meta_info["prompt_tokens"] == sent.prompt_tokens


def check_so_far(server: LiveServer, outputs: Mapping[int, Any]) -> None:
    """Every output is the beginning of what the scheduler has sent."""
    for output in outputs.values():
        sent, have = server.truth.sent(rid_of(output)), len(output.token_ids)
        assert list(output.token_ids) == sent.token_ids[:have]
        assert list(output.logprobs) == sent.logprobs[:have]


class Held:
    """What somebody holds who only applies updates."""

    def __init__(self, updates: Iterable[Update] = ()) -> None:
        self.token_ids: dict[int, list[int]] = {}
        self.logprobs: dict[int, list[float | None]] = {}
        self.text: dict[int, str] = {}
        for update in updates:
            self.apply(update)

    def apply(self, update: Update) -> None:
        ids = self.token_ids.setdefault(update.index, [])
        rows = self.logprobs.setdefault(update.index, [])
        text = self.text.setdefault(update.index, "")
        if update.replace:
            ids.clear()
            rows.clear()
        assert update.start == len(ids) == len(rows)
        ids.extend(update.token_ids)
        rows.extend(update.logprobs)
        if update.text is not None:
            assert update.text_start <= len(text)
            self.text[update.index] = text[: update.text_start] + update.text

    def check(self, outputs: Mapping[int, Any]) -> None:
        """It is what the stream itself holds."""
        assert sorted(self.token_ids) == sorted(outputs)
        for index, output in outputs.items():
            assert self.token_ids[index] == list(output.token_ids)
            assert self.logprobs[index] == list(output.logprobs)
            assert self.text[index] == output.text()
