"""Token-aligned lists beside ids and logprobs: top logprobs, sampling masks, a model's own lists.

Each is a lane of its own.  The four that SGLang names must fit their counters or the chunk is refused.  Any other list
in ``meta_info`` (``customized_info`` of a model or plugin) is taken as aligned with the tokens for as long as its
length says so, and as a plain value otherwise, because nothing on the wire tells one kind from the other.

Facts: SGLang ``managers/tokenizer_manager.py::_handle_batch_output`` (customized_info was a delta in every mode in
0.5.9-0.5.12) and ``_slice_streaming_output_meta_info``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import PayloadError, ProtocolError
from .lanes import CUMULATIVE, INCREMENTAL, Lane, place_counted

#: Lists with one entry per output token, by SGLang's own names.
ALIGNED = frozenset(
    {
        "output_top_logprobs",
        "output_token_ids_logprobs",
        "output_token_sampling_mask",
        "output_token_sampling_logprobs",
    }
)
_MASKS = frozenset({"output_token_sampling_mask", "output_token_sampling_logprobs"})

#: Lists that are values of their own and never one entry per output token.
PLAIN = frozenset(
    {
        "output_token_logprobs",
        "input_token_logprobs",
        "input_top_logprobs",
        "input_token_ids_logprobs",
        "hidden_states",
        "prompt_token_ids",
        "weight_versions",
        "beam_results",
        "routed_experts",
        "indexer_topk",
        "top_p_token_ids",
        "top_p_token_offsets",
        "top_p_kept_token_ids",
        "top_p_kept_token_offsets",
        "output_topk_shape",
    }
)


class Extra:
    """One token-aligned list so far; ``items`` is None once it turned out not to be aligned."""

    __slots__ = ("items", "lane")

    def __init__(self, lane: Lane | None = None, items: list[Any] | None = None) -> None:
        self.lane: Lane | None = lane
        self.items: list[Any] | None = items

    def state(self) -> dict[str, Any]:
        """Plain data for a snapshot."""
        return {"lane": self.lane, "items": None if self.items is None else list(self.items)}


class ExtraStep(NamedTuple):
    """What a chunk does to one list: append ``new``, or give it up as not aligned (``new`` is None)."""

    name: str
    lane: Lane | None
    new: list[Any] | None


def plan_extras(
    meta: Mapping[str, Any],
    extras: Mapping[str, Extra],
    *,
    total: int,
    rows_total: int | None,
    terminal: bool,
    queue_abort: bool,
    hint: str,
) -> list[ExtraStep]:
    """Place every token-aligned list of a chunk.

    ``total``: tokens of the output after this chunk.  ``rows_total``: the logprob rows' own counter, if it came.

    :raises ProtocolError: a list that SGLang keeps aligned is not.
    :raises PayloadError: a field that must be a list is not.
    """
    steps: list[ExtraStep] = []
    for name, value in meta.items():
        if type(value) is not list:
            if name in ALIGNED and value is not None:
                raise PayloadError(f"meta_info.{name} must be a list or null, found {type(value).__name__}")
            continue
        if name in PLAIN:
            continue
        known = extras.get(name)
        if name in ALIGNED:
            counter = meta.get("output_token_sampling_mask_length") if name in _MASKS else rows_total
            count = counter if type(counter) is int else total
            step = _plan_named(name, value, known, count, terminal, queue_abort, hint)
        else:
            step = _plan_custom(name, value, known, total)
        if step is not None:
            steps.append(step)
    if terminal and not queue_abort:
        _check_whole(meta, extras, steps, total, hint)
    return steps


def _check_whole(
    meta: Mapping[str, Any], extras: Mapping[str, Extra], steps: list[ExtraStep], total: int, hint: str
) -> None:
    """At its end an output has one entry per token in each list that SGLang names and that was not empty.

    Whoever trains zips these lists with the tokens: one that is shorter would move all its entries.  An abort out of
    the waiting queue leaves out the sampling mask, and is not asked.
    """
    new = {step.name: len(step.new or ()) for step in steps}
    for name in sorted(ALIGNED & (extras.keys() | new.keys() | _counted(meta))):
        known = extras.get(name)
        have = (0 if known is None or known.items is None else len(known.items)) + new.get(name, 0)
        if have != total and (have or name in _counted(meta)):
            raise ProtocolError(
                f"meta_info.{name} covers {have} of {total} tokens at the end of the output, so its entries cannot be "
                f"aligned with the tokens. {hint}"
            )


def _counted(meta: Mapping[str, Any]) -> frozenset[str]:
    # The mask alone: its counter counts nothing else.
    counted = meta.get("output_token_sampling_mask_length")
    return frozenset({"output_token_sampling_mask"} if counted else ())


def _plan_named(
    name: str, value: list[Any], known: Extra | None, total: int, terminal: bool, queue_abort: bool, hint: str
) -> ExtraStep | None:
    items = known.items if known is not None and known.items is not None else []
    have = len(items)
    length = len(value)
    if length == 0 and have == 0:
        return None
    field = f"meta_info.{name}"
    place = place_counted(field, length, have, total, terminal=terminal, queue_abort=queue_abort, hint=hint)
    lane = known.lane if known is not None else None
    if place.lane == INCREMENTAL and lane == CUMULATIVE:
        # As long as what is new by accident: taken for a delta, it would be there twice.
        raise ProtocolError(f"{field} is cumulative, and has {length} entries where there must be {total}. {hint}")
    if place.lane is not None and not place.glued:
        lane = lane or place.lane
    kept = place.new - place.glued if place.lane != INCREMENTAL else 0
    first = place.glued
    if kept and items[:kept] != value[first : place.new]:
        raise ProtocolError(f"{field} changed entries already sent (among the first {kept}). {hint}")
    new = value[place.new :]
    if place.glued and value[: place.glued] != new[: place.glued]:
        raise ProtocolError(f"{field}: the {place.glued} entries before the abort snapshot are not part of it. {hint}")
    return ExtraStep(name, lane, new)


def _plan_custom(name: str, value: list[Any], known: Extra | None, total: int) -> ExtraStep | None:
    length = len(value)
    if known is None:
        if not length and not total:
            return None  # a chunk before the first token: the list may be one per token or none
        return ExtraStep(name, None, value) if length == total and length else ExtraStep(name, None, None)
    if known.items is None:
        return None
    have = len(known.items)
    if length == total and have <= length and known.items == value[:have]:
        return ExtraStep(name, CUMULATIVE if have else None, value[have:])
    if have + length == total and known.lane != CUMULATIVE:
        return ExtraStep(name, INCREMENTAL if have else None, value)
    return ExtraStep(name, known.lane, None)
