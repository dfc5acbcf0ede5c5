"""The real SGLang server, whose scheduler writes down every message that it sends: one JSON line an output.

Only ``SenderWrapper.send_output`` is wrapped: written down, then sent.  ``TRUTH_FILE`` names the file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

KEYS = [
    "output_ids",
    "finished_reasons",
    "prompt_tokens",
    "completion_tokens",
    "output_token_logprobs_val",
    "output_token_logprobs_idx",
    "output_top_logprobs_val",
    "output_top_logprobs_idx",
    "routed_experts",
]


def plain(value: Any) -> Any:
    """As JSON; arrays of any library with their shape."""
    if isinstance(value, (int, float, str, bool)) or value is None:
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "shape"):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}
    return [plain(item) for item in value]


def rows(output: Any) -> list[dict[str, Any]]:
    """What one message says about each output in it."""
    kind = type(output).__name__
    if kind == "AbortReq":
        return [{"t": time.time(), "rid": output.rid, "AbortReq": repr(output)[:500]}]
    if kind != "BatchTokenIDOutput":
        return []
    found: list[dict[str, Any]] = []
    for at, rid in enumerate(output.rids):
        row: dict[str, Any] = {"t": time.time(), "rid": rid}
        for key in KEYS:
            values = getattr(output, key, None)
            if values is None or at >= len(values) or values[at] is None:
                continue
            row[key] = plain(values[at])
        found.append(row)
    return found


def run_scheduler(*args: Any, **kwargs: Any) -> Any:
    """The scheduler's process."""
    sender = import_module("sglang.srt.managers.scheduler_components.output_sender").SenderWrapper
    # The buffer for routed experts wants its pages pinned for a GPU.
    pages: Any = import_module("sglang.srt.mem_cache.pool_host.common")
    pages._cuda_host_register = lambda *_, **__: None
    send = sender.send_output

    def send_output(self: Any, output: Any, recv_obj: Any = None) -> Any:
        try:
            file.writelines(json.dumps(row) + "\n" for row in rows(output))
        except Exception as error:  # noqa: BLE001  # the tests find it in the file; the server must go on
            file.write(json.dumps({"truth_error": repr(error)}) + "\n")
        return send(self, output, recv_obj)

    sender.send_output = send_output
    with open(os.environ["TRUTH_FILE"], "a", buffering=1) as file:  # noqa: PTH123  # line by line, as it happens
        return import_module("sglang.srt.managers.scheduler").run_scheduler_process(*args, **kwargs)


if __name__ == "__main__":
    # By its name as a module, so that the scheduler's process finds it.
    here = import_module("serve_truth")
    arguments = import_module("sglang.srt.server_args").prepare_server_args(sys.argv[1:])
    import_module("sglang.srt.entrypoints.http_server").launch_server(
        arguments, run_scheduler_process_func=here.run_scheduler
    )
