"""A sample as plain data and back: what ``RolloutSample.to_bytes`` writes and ``from_bytes`` trusts.

The container (checksum, version, no code inside) is ``ssefold.codec``'s; here is what the fields of a sample are
called in it, and that they fit together.  ``FORMAT`` counts changes of these names.
"""

from __future__ import annotations

from array import array
from typing import Any

from ssefold import FinishReason, ReplayRows, SnapshotError, TopPReplay
from ssefold.codec import pack, unpack
from ssefold.views import thaw

from .call import Call, WeightSpan
from .replay import TopPRows
from .state import Base, State
from .text import RolloutText

FORMAT = 1
_KIND = "rollout"


def encode(state: State) -> bytes:
    """Versioned, checksummed bytes."""
    base, routed = state.base, state.routed
    ids, offsets = state.top_p.arrays()
    return pack(
        _KIND,
        {
            "format": FORMAT,
            "prompt_ids": state.prompt_ids,
            "params": state.params,
            "shape": state.shape,
            "token_ids": state.token_ids,
            "logprobs": state.logprobs,
            "mask": bytes(state.mask),
            "text": state.text.value(),
            "top_p": [ids, offsets],
            "routed": None if routed is None else routed.values,
            "spans": [list(span) for span in state.spans],
            "calls": [list(call) for call in state.calls],
            "base": [base.tokens, base.text, base.top_rows, base.spans, base.routed_from],
            "base_routed": None if base.routed is None else base.routed.values,
            "scores": [state.pending, state.scored, state.unscored],
            "open": state.open,
            "scores_due": state.scores_due,
            "index": state.index,
            "finish": None if state.finish is None else thaw(state.finish.raw),
        },
    )


def decode(data: bytes | bytearray | memoryview) -> State:
    """Undo :func:`encode`.

    :raises SnapshotError: truncated, altered, of another format, or fields that do not fit together.
    """
    plain = unpack(_KIND, data)
    found = plain.get("format")
    if found != FORMAT:
        raise SnapshotError(f"the sample is of format {found!r}, this release reads format {FORMAT}")
    try:
        return _checked(_state_of(plain))
    except SnapshotError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise SnapshotError(f"the sample's checksum holds but its content does not fit: {error!r}") from error


def _state_of(plain: dict[str, Any]) -> State:
    shape = None if plain["shape"] is None else (plain["shape"][0], plain["shape"][1])
    tokens, text, top_rows, spans, routed_from = map(_count, plain["base"])
    pending, scored, unscored = map(_count, plain["scores"])
    return State(
        prompt_ids=_array("q", plain["prompt_ids"]),
        params=dict(plain["params"]),
        shape=shape,
        token_ids=_array("q", plain["token_ids"]),
        logprobs=_array("d", plain["logprobs"]),
        mask=bytearray(plain["mask"]),
        text=RolloutText(plain["text"]),
        top_p=TopPRows.of(TopPReplay(*plain["top_p"])),
        routed=_rows(plain["routed"], shape),
        spans=[WeightSpan(*span) for span in plain["spans"]],
        calls=[Call(*call) for call in plain["calls"]],
        base=Base(tokens, text, top_rows, spans, _rows(plain["base_routed"], shape), routed_from),
        pending=pending,
        scored=scored,
        unscored=unscored,
        open=bool(plain["open"]),
        scores_due=bool(plain["scores_due"]),
        index=plain["index"],
        finish=FinishReason.parse(plain["finish"]),
    )


def _checked(state: State) -> State:
    count, base = len(state.token_ids), state.base
    within = (
        len(state.logprobs) == len(state.mask) == count
        and base.tokens <= count
        and base.text <= state.text.length
        and base.spans <= len(state.spans)
        and base.top_rows <= len(state.top_p) <= count
        and state.pending <= state.given
        and (not state.open or len(state.calls) > 0)
    )
    if not within:
        raise SnapshotError(f"the sample's checksum holds, but its {count} token ids and other fields do not fit")
    return state


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"expected a whole number from 0, found {value!r:.80}")
    return value


def _array(code: str, value: Any) -> array[Any]:
    if not isinstance(value, array) or value.typecode != code:
        raise TypeError(f"expected an array of {code!r}, found {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]


def _rows(values: Any, shape: tuple[int, int] | None) -> ReplayRows | None:
    if values is None:
        return None
    if shape is None:
        raise ValueError("routing without a shape")
    rows, odd = divmod(len(values), shape[0] * shape[1])
    if odd:
        raise ValueError(f"{len(values)} routing numbers are no rows of {shape}")
    return ReplayRows(values, 0, (rows, *shape))
