"""Writes ``clp.txt`` into the current folder: a serialised logit processor that makes greedy decoding follow a script.

Sent as ``custom_logit_processor`` with ``sampling_params.custom_params = {"script": [token ids]}`` and temperature 0.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_Base: Any = import_module("sglang.srt.sampling.custom_logit_processor").CustomLogitProcessor


class Script(_Base):  # type: ignore[misc]  # the server's own class
    """Lifts the script's next token, by another amount each time, so that logprobs differ."""

    def __call__(self, logits: Any, custom_param_list: Any = None) -> Any:
        for row, params in enumerate(custom_param_list):
            script, step = params["script"], params.get("_step", 0)
            params["_step"] = step + 1
            if step < len(script):
                logits[row, script[step]] += 6.0 + step * 2654435761 % 1000 / 125
                for near in (1, 2, 3):
                    logits[row, (script[step] + 97 * near + step) % logits.shape[-1]] += 1 + 0.9 * near
        return logits


if __name__ == "__main__":
    Path("clp.txt").write_text(Script.to_str())
