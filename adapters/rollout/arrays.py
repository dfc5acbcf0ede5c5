"""A sample as arrays for a trainer: read-only copies that NumPy and torch take over without copying again.

Knows states and buffers; needs neither NumPy nor torch.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from .state import State


class RolloutArrays(NamedTuple):
    """A sample's arrays, frozen and read-only: ``numpy.asarray(arrays.token_ids)`` copies nothing.

    :ivar prompt_ids: shape ``(p,)``, int64.
    :ivar token_ids: shape ``(n,)``, int64: the response, tool tokens included.
    :ivar logprobs: shape ``(n,)``, float64; 0.0 where the loss mask is 0, NaN where the server sent null; ``(0,)`` if
        no server sent any.
    :ivar loss_mask: shape ``(n,)``, uint8; 1 for sampled tokens.
    :ivar top_p_token_ids: shape ``(k,)``, int32, or None.
    :ivar top_p_offsets: shape ``(n + 1,)``, int32, or None.
    :ivar routed_experts: shape ``(p + n - 1, num_layers, top_k)``, int32, or None.
    """

    prompt_ids: memoryview
    token_ids: memoryview
    logprobs: memoryview
    loss_mask: memoryview
    top_p_token_ids: memoryview | None
    top_p_offsets: memoryview | None
    routed_experts: memoryview | None


def arrays_of(state: State) -> RolloutArrays:
    """Copies of all arrays."""
    top_p = state.top_p.value(state.mask)
    return RolloutArrays(
        memoryview(state.prompt_ids.tobytes()).cast("q"),
        memoryview(state.token_ids.tobytes()).cast("q"),
        cast("memoryview", memoryview(state.scores.tobytes()).cast("d")),
        memoryview(bytes(state.mask)),
        None if top_p is None else top_p.token_ids,
        None if top_p is None else top_p.offsets,
        None if state.routed is None else state.routed.array,
    )
