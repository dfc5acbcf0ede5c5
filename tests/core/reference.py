"""The decoder without any of its shortcuts: every event parsed whole, every chunk through ``Accumulator.add``.

The oracle for the paths that parse less: whatever they skip, this does.  It keeps to the public API, and to what
``GenerateDecoder`` promises about failures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ssefold import (
    Accumulator,
    IncompleteStreamError,
    PayloadError,
    ServerError,
    ServerSentEvent,
    SSEParser,
    StreamError,
    Update,
)
from ssefold.fold.payload import BadJSONError, parse_payload


@dataclass
class Reference:
    """One body, folded the long way."""

    mode: Any = "auto"
    skip_bad_json: bool = False
    outputs: dict[int, Accumulator] = field(default_factory=dict[int, Accumulator])
    updates: list[Update] = field(default_factory=list[Update])
    error: StreamError | None = None
    done: bool = False
    skipped: int = 0

    def fold(self, reads: Iterable[bytes]) -> Reference:
        """Take the whole body."""
        parser = SSEParser()
        for read in reads:
            for event in parser.feed(read):
                self._take(event)
        if self.error is None:
            self._close()
        return self

    def _take(self, event: ServerSentEvent) -> None:
        if event.data_bytes == b"[DONE]":
            self.done = True
        elif self.error is None:
            try:
                self._fold(event)
            except BadJSONError as error:
                if self.skip_bad_json and event.event != "error":
                    self.skipped += 1
                else:
                    self.error = error
            except StreamError as error:
                self.error = error

    def _fold(self, event: ServerSentEvent) -> None:
        if event.event == "error":
            payload = _reported(event)
        else:
            if not event.data_bytes.strip():
                self.skipped += 1
                return
            payload = parse_payload(event.data_bytes)
            if not {"text", "output_ids", "meta_info", "index", "error"} & payload.keys():
                self.skipped += 1
                return
        if payload.get("error") is not None:
            self._fail(payload)
            return
        index = payload.get("index", 0)
        index = 0 if index is None else index
        if type(index) is not int or index < 0:
            raise PayloadError(f"index must be a whole number from 0, found {type(index).__name__} {index!r:.80}")
        output = self.outputs.get(index) or Accumulator(self.mode, index=index)
        if output.error is None:
            goes_on = output.finish_reason is None
            update = output.add(payload)
            self.outputs[index] = output
            if goes_on:
                self.updates.append(update)

    def _fail(self, payload: dict[str, Any]) -> None:
        index = payload.get("index")
        if type(index) is not int or index < 0:
            try:
                Accumulator(self.mode).add(payload)
            except ServerError as error:
                error.index = None
                raise
        else:
            output = self.outputs.get(index) or Accumulator(self.mode, index=index)
            if output.finish_reason is None and output.error is None:
                with suppress(ServerError):
                    output.add(payload)
            self.outputs[index] = output

    def _close(self) -> None:
        failed = [output.error for output in self.outputs.values() if output.error is not None]
        if failed:
            self.error = failed[0]
        elif not self.outputs or any(output.finish_reason is None for output in self.outputs.values()):
            self.error = IncompleteStreamError()


def _reported(event: ServerSentEvent) -> dict[str, Any]:
    """``event: error`` is a failure whatever its data says."""
    try:
        payload = json.loads(event.data_bytes.decode())
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        return {"error": event.data or "event: error without data"}
    return payload if payload.get("error") is not None else {**payload, "error": payload}
