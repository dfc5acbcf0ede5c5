"""Arrays that come once with a chunk: their dtype, and what does not fit it."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from typing import Any

import pytest

from ssefold import Accumulator, ReplayError


@pytest.mark.parametrize(("dtype", "code"), [("int32", "i"), ("uint8", "B"), ("uint16", "H"), (None, "i")])
def test_routed_experts_are_of_the_dtype_that_stands_beside_them(dtype: str | None, code: str) -> None:
    """One version of slime's image wrote ``uint8`` where there are at most 256 experts."""
    experts = [0, 3, 255, 7, 9, 1, 2]
    packed = array(code, experts)
    if sys.byteorder == "big":
        packed.byteswap()
    meta: dict[str, Any] = {"routed_experts": b64encode(packed.tobytes()).decode(), "finish_reason": {"type": "stop"}}
    if dtype is not None:
        meta["routed_experts_dtype"] = dtype
    update = Accumulator().add({"text": "a", "output_ids": [1], "meta_info": {"completion_tokens": 1, **meta}})
    assert update.routed_experts is not None
    assert list(update.routed_experts.values) == experts


@pytest.mark.parametrize(("dtype", "says"), [("int64", "expected int32, uint16"), ("uint16", "not base64 of uint16")])
def test_a_dtype_that_does_not_fit_is_refused(dtype: str, says: str) -> None:
    meta = {"completion_tokens": 1, "routed_experts": b64encode(b"abc").decode(), "routed_experts_dtype": dtype}
    with pytest.raises(ReplayError, match=says):
        Accumulator().add({"text": "a", "output_ids": [1], "meta_info": meta})
