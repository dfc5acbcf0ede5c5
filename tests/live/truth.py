"""What the server's scheduler says that it sent: the account that every stream is held against.

``sglang_cpu/serve_truth.py`` writes one JSON line for each output in each message, before the message goes out; so what
a client has seen is always in the file.  Knows the file, and nothing of streams.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds after which a scheduler that should have stopped has not."""


@dataclass
class Sent:
    """All that was sent for one request id.

    :ivar times: of the messages, with tokens or without, by the server's clock.
    :ivar finish: the reason of the last message, or None while it runs.
    :ivar routing: nested lists of shape ``(rows, layers, top_k)``, or None.
    :ivar top_logprobs: per token ``[logprob, id, None]`` of each candidate, as the wire has them.
    :ivar queue_abort: it was aborted before it ran, or after it was sent back to the queue.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    prompt_tokens: int = 0
    routing: list[list[list[int]]] | None = None
    queue_abort: bool = False
    top_logprobs: list[list[list[Any]]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.finish is not None or self.queue_abort

    def after(self, moment: float) -> int:
        """How many messages came later."""
        return sum(sent > moment for sent in self.times)


class Truth:
    """The file, read as far as it has got."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._sent: dict[str, Sent] = {}

    def sent(self, rid: str) -> Sent:
        self._read()
        return self._sent.get(rid) or Sent()

    def end_of(self, rid: str) -> Sent:
        """Wait for the last message; the file tells nobody that it grows, so it is looked at again and again."""
        deadline = time.monotonic() + PATIENCE
        while not (sent := self.sent(rid)).over:
            if time.monotonic() > deadline:
                raise AssertionError(f"{rid} still runs after {PATIENCE} s, with {len(sent.token_ids)} tokens")
            time.sleep(0.02)
        return sent

    def running(self) -> list[str]:
        """Ids that have begun and not ended.  Those that only wait are not among them."""
        self._read()
        return [rid for rid, sent in self._sent.items() if not sent.over]

    def _read(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().split(b"\n")
            self._offset = file.tell() - len(lines[-1])  # the last one may be half written
        for line in lines[:-1]:
            self._note(json.loads(line))

    def _note(self, row: dict[str, Any]) -> None:
        assert "truth_error" not in row, row
        sent = self._sent.setdefault(row["rid"], Sent())
        sent.times.append(row["t"])
        sent.token_ids += row.get("output_ids", [])
        sent.logprobs += row.get("output_token_logprobs_val", [])
        sent.prompt_tokens = row.get("prompt_tokens", sent.prompt_tokens)
        sent.finish = row.get("finished_reasons", sent.finish)
        sent.queue_abort |= "AbortReq" in row
        for values, ids in zip(
            row.get("output_top_logprobs_val", []), row.get("output_top_logprobs_idx", []), strict=True
        ):
            sent.top_logprobs.append([[value, token, None] for value, token in zip(values, ids, strict=True)])
        if "routed_experts" in row:
            sent.routing = row["routed_experts"]["values"]
