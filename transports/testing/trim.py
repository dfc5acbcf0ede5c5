"""Parts of a script: what is left when a request stops early, and what a request that resumes still has to give.

Both are scripts again, so that a server needs to know nothing of resuming: ``head`` ends sooner, ``tail`` starts later
with the prompt grown by what was given before.  This module knows nothing of requests or of chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .script import Span

if TYPE_CHECKING:
    from .script import Finish, Script

_PER_TOKEN = ("pieces", "logprobs", "top_logprobs", "ids_logprobs", "sampling_mask", "hidden_states")


def head(script: Script, tokens: int, finish: Finish) -> Script:
    """The first ``tokens`` tokens, ending in ``finish``."""
    fed = len(script.prompt_ids) + max(tokens - 1, 0)
    routings: dict[str, Any] = {
        name: replace(routing, rows=routing.rows[:fed])
        for name in ("routed_experts", "indexer_topk")
        if (routing := getattr(script, name)) is not None
    }
    spans = [replace(span, end=min(span.end, tokens)) for span in script.weight_spans if span.start < tokens]
    return _sliced(script, slice(0, tokens), finish=finish, extra_rows=(), weight_spans=tuple(spans), **routings)


def tail(script: Script, tokens: int) -> Script:
    """All but the first ``tokens`` tokens, which have become part of the prompt.

    Routing rows stay as they are: they count positions from the start of the prompt.
    """
    spans = [
        Span(span.version, max(span.start - tokens, 0), span.end - tokens)
        for span in script.weight_spans
        if span.end > tokens
    ]
    return _sliced(
        script,
        slice(tokens, None),
        prompt_ids=script.prompt_ids + script.token_ids[:tokens],
        weight_spans=tuple(spans),
        reasoning_tokens=max(script.reasoning_tokens - tokens, 0),
    )


def _sliced(script: Script, part: slice, **changes: Any) -> Script:
    for name in _PER_TOKEN:
        values = getattr(script, name)
        if values is not None:
            changes[name] = values[part]
    return replace(
        script,
        token_ids=script.token_ids[part],
        sampling_logprobs=script.sampling_logprobs[part],
        top_p_rows=script.top_p_rows[part],
        custom={key: values[part] for key, values in script.custom.items()},
        **changes,
    )
