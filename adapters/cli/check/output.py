"""Finds problems and oddities in one output's chunks, with the update that the core made of each.

Knows one output and the wire's names; offsets and counting are :mod:`.check`'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from ssefold import Accumulator, FinishReason, Update

from ..terminal import plural

_OUTPUT_IDS = re.compile(rb'"output_ids"\s*:\s*\[([^\]]*)\]')

Remark: TypeAlias = "tuple[str, str]"
"""A rule's code, and what was seen."""


class OutputCheck:
    """Watches one output."""

    def __init__(self) -> None:
        self._tokens = 0
        self._text = 0
        self._weights: set[str] = set()
        self.is_over: bool = False

    def chunk(self, data: bytes, update: Update, output: Accumulator) -> Iterator[Remark]:
        """What is remarkable about a chunk that was folded into ``update``; ``data`` is its JSON."""
        meta = update.meta_info
        finish = update.finish_reason
        new = len(output.token_ids) - self._tokens
        yield from self._ids(data, meta, output, new)
        yield from self._text_of(update, output)
        if any(logprob is None for logprob in update.logprobs):
            yield "SG301", f"{sum(logprob is None for logprob in update.logprobs)} logprobs are null"
        if not new and not update.text and finish is None:
            yield "SG308", "a chunk without new tokens or text"
        yield from self._meta(meta, finish)
        if finish is not None:
            self.is_over = True
            yield from _finish(finish, meta, len(output.token_ids))
        self._tokens = len(output.token_ids)

    def end(self, output: Accumulator) -> Iterator[Remark]:
        """What is remarkable about the output as a whole."""
        lanes = {name: lane for name, lane in output.lanes.items() if lane is not None}
        if len(set(lanes.values())) > 1:
            yield "SG101", ", ".join(f"{name} {lane}" for name, lane in lanes.items())
        tokens, scored = len(output.token_ids), len(output.logprobs)
        if 0 < scored < tokens:
            yield "SG302", f"{tokens - scored} of {plural(tokens, 'token')} without a logprob"
        counted = output.meta_info.get("completion_tokens")
        finish = output.finish_reason
        if finish is not None and not _is_refused(finish) and type(counted) is int and counted != tokens:
            yield "SG303", f"completion_tokens is {counted}, {plural(tokens, 'token')} came"
        if "\ufffd" in output.text():
            yield "SG304", f"{output.text().count(chr(0xFFFD))} replacement characters"
        yield from _routing(output)

    def _ids(self, data: bytes, meta: Mapping[str, Any], output: Accumulator, new: int) -> Iterator[Remark]:
        counted = meta.get("completion_tokens")
        total = len(output.token_ids)
        if type(counted) is not int:
            return
        if total > counted and output.finish_reason is None:
            yield "SG103", f"{total} tokens are in the lists, completion_tokens says {counted}"
        # Most chunks can have none of the rest: their ids need not be counted.
        begins, repeats, loses = not self._tokens, not new and self._tokens > 1, self._loses_ids(output)
        if not (begins or repeats or loses):
            return
        ids = _sent_ids(data)
        if ids is None:
            return
        queue_abort = output.finish_reason is not None and not meta.get("prompt_tokens")
        if begins and len(ids) > total == counted:
            yield "SG102", f"{len(ids)} ids came for {plural(total, 'token')}"
        elif repeats and len(ids) == 1 and counted == self._tokens and not queue_abort:
            yield "SG106", f"id {ids[0]} came once more, {total} tokens are known"
        elif loses and meta.get("output_token_logprobs") and not queue_abort and not begins and len(ids) < new:
            yield "SG104", f"{new} new tokens, {len(ids)} of them in output_ids"

    def _loses_ids(self, output: Accumulator) -> bool:
        lanes = output.lanes
        return lanes.get("output_ids") != "cumulative" and lanes.get("logprobs") != "incremental"

    def _text_of(self, update: Update, output: Accumulator) -> Iterator[Remark]:
        if update.text is None:
            return
        if update.text_start < self._text and not update.replace:
            yield "SG107", f"from character {update.text_start} of {self._text}"
        self._text = update.text_start + len(update.text)

    def _meta(self, meta: Mapping[str, Any], finish: FinishReason | None) -> Iterator[Remark]:
        version = meta.get("weight_version")
        if isinstance(version, str):
            self._weights.add(version)
        spans = meta.get("weight_versions")
        if isinstance(spans, list):
            spans_ = [_mapping(span) for span in spans]
            self._weights |= {span["version"] for span in spans_ if isinstance(span.get("version"), str)}
        if finish is not None and len(self._weights) > 1:
            yield "SG306", "versions " + ", ".join(sorted(self._weights))
        retractions = meta.get("num_retractions", meta.get("total_retractions"))
        if finish is not None and type(retractions) is int and retractions > 0:
            yield "SG307", f"{retractions} times"
        reasoning, counted = meta.get("reasoning_tokens"), meta.get("completion_tokens")
        if type(reasoning) is int and type(counted) is int and reasoning > counted:
            yield "SG305", f"{reasoning} reasoning tokens, {counted} tokens"
        if finish is None and "routed_experts" in meta and meta["routed_experts"] is None:
            yield "SG402", "routed_experts is null in a chunk before the last"


def _finish(finish: FinishReason, meta: Mapping[str, Any], tokens: int) -> Iterator[Remark]:
    said = finish.message or finish.type
    if finish.type != "abort":
        if finish.is_failure:
            yield "SG211", f"matched {finish.matched!r} after {plural(tokens, 'token')}"
    elif finish.retryable:
        yield "SG209", f"status {finish.status_code}: {said}"
    elif finish.is_failure:
        yield "SG208", f"status {finish.status_code}: {said}"
    elif meta.get("prompt_tokens"):
        yield "SG206", f"{said}, after {plural(tokens, 'token')}"
    else:
        yield "SG207", f"{said}, after {plural(tokens, 'token')}"


def _is_refused(finish: FinishReason) -> bool:
    return finish.type == "abort" and finish.status_code is not None


def _routing(output: Accumulator) -> Iterator[Remark]:
    routing = output.routed_experts
    if routing is None:
        return
    if not len(routing):
        yield "SG403", "zero rows"
        return
    prompt = output.meta_info.get("prompt_tokens")
    if type(prompt) is int and output.finish_reason is not None:
        rows = prompt + len(output.token_ids) - 1
        if rows > 0 and len(routing) % rows:
            yield "SG404", f"{len(routing):,} numbers, {rows:,} rows fed"


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _sent_ids(data: bytes) -> list[str] | None:
    """The ids in a chunk's ``output_ids``, as they are written; None where it has no such list.

    Looked for in the bytes: inside a JSON string the quotes would be escaped.
    """
    found = _OUTPUT_IDS.search(data)
    return None if found is None else re.findall(r"\d+", found[1].decode("ascii", "replace"))
