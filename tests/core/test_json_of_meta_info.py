"""Whatever a caller is given of ``meta_info`` can be logged as JSON, and cannot be changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import GenerateDecoder

META = {
    "id": "r",
    "finish_reason": None,
    "prompt_tokens": 3,
    "completion_tokens": 1,
    "weights": {"a": [1, {"b": None}]},
}


def chunk(count: int, **more: Any) -> bytes:
    meta = {**META, "completion_tokens": count, **more}
    return b"data: %s\n\n" % json.dumps({"text": "x", "output_ids": [count], "meta_info": meta}).encode()


@pytest.mark.parametrize("fast_path", [True, False])
def test_meta_info_is_written_as_json(fast_path: bool) -> None:
    decoder = GenerateDecoder(fast_path=fast_path)
    updates = [update for count in range(1, 9) for update in decoder.feed(chunk(count))]
    updates += decoder.feed(chunk(9, finish_reason={"type": "stop", "matched": 9}))
    assert [json.loads(json.dumps(update.meta_info))["completion_tokens"] for update in updates] == list(range(1, 10))
    assert json.loads(json.dumps(updates[4].meta_info))["weights"] == META["weights"]
    output = decoder.outputs[0]
    finish = output.finish_reason
    assert finish is not None
    assert json.loads(json.dumps(finish.raw)) == {"type": "stop", "matched": 9}
    held: Any
    for held in (output.meta_info, output.snapshot().meta_info, updates[4].meta_info):
        assert json.loads(json.dumps(held["weights"])) == META["weights"]
        with pytest.raises(TypeError, match="read-only"):
            held["weights"]["a"].append(1)
        held.copy()["weights"]["a"].append(1)
        assert held["weights"] == META["weights"]
