"""Servers that are not SGLang's tokenizer manager: the Rust server, the gateways, Dynamo.

Each class takes the same calls as :class:`~ssefold.transports.testing.wire.manager.ManagedOutput`.  Sources:
``rust/sglang-server/src/api_server/core/{frame,generate}.rs``; sgl-model-gateway's and smg's
``routers/grpc/regular/streaming.rs`` and ``routers/http/pd_router.rs``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .detokenizer import Detokenizer
from .held import Held

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Alternatives, Script


class RustOutput:
    """One output of the Rust server: own JSON, deltas never joined, failures are events of their own."""

    def __init__(self, script: Script, profile: Profile) -> None:
        self._script = script
        self._profile = profile
        self._detokenizer = Detokenizer(script)
        self._pending: list[dict[str, Any]] = []
        self._sent = 0
        self._text = ""
        self._held = Held(script)

    @property
    def pending(self) -> bool:
        """A chunk waits to be taken."""
        return bool(self._pending)

    def send(self, new_tokens: int, *, last: bool) -> None:
        """So many new tokens; ``last`` carries the finish reason, or fails the output where it is an abort's."""
        start, self._sent = self._sent, self._sent + new_tokens
        delta = self._detokenizer.step(self._sent, finished=last)
        self._text += delta
        if last and self._fails():
            return
        self._pending.append(self._frame(start, delta, finished=last))

    def abort(self) -> None:
        """The request was queued or retracted, and is gone."""
        if not self._fails():
            self._pending.append(self._frame(self._sent, "", finished=True))

    def take(self) -> list[dict[str, Any]]:
        """All deltas, or the newest snapshot; a failure comes alone in any case."""
        pending, self._pending = self._pending, []
        if self._profile.incremental or len(pending) < 2:
            return pending
        return pending[-2:] if "error" in pending[-1] else pending[-1:]

    def held_after(self, payload: dict[str, Any]) -> Held:
        """What a client holds once this event has arrived."""
        held = self._held
        if "error" in payload:
            self._held = replace(held, error=payload["error"])
            return self._held
        meta = payload["meta_info"]
        counted = meta["completion_tokens"]
        rows = len(meta.get("output_token_logprobs", ()))
        self._held = replace(
            held,
            tokens=counted,
            counted=counted,
            rows=held.rows + rows if self._profile.incremental else max(rows, held.rows),
            text=held.text + payload["text"] if self._profile.incremental else payload["text"],
            finish_reason=meta["finish_reason"],
        )
        return self._held

    def _fails(self) -> bool:
        status = self._script.finish.abort_status
        if status is None:
            return False
        message = (self._script.finish.reason or {}).get("message", "")
        self._pending.append({"error": self._profile.error(message, status_code=status)})
        return True

    def _frame(self, start: int, delta: str, *, finished: bool) -> dict[str, Any]:
        script = self._script
        first = start if self._profile.incremental else 0
        reason = script.finish.reason or {"type": "abort", "message": "Abort in waiting queue"}
        meta: dict[str, Any] = {
            "id": script.rid,
            "prompt_tokens": len(script.prompt_ids),
            "completion_tokens": self._sent,
            "finish_reason": dict(reason) if finished else None,
        }
        if finished:
            meta["e2e_latency"] = script.e2e_latency
        if script.logprobs is not None:
            # The input side arrives once; an incremental stream never repeats it.
            with_input = not self._profile.incremental or start == 0
            entries = list(zip(script.logprobs, script.token_ids, strict=True))[first : self._sent]
            inputs = script.input_logprobs if with_input and self._sent else ()
            if entries or inputs:
                meta["output_token_logprobs"] = [self._entry(*entry) for entry in entries]
                meta["input_token_logprobs"] = [self._entry(*entry) for entry in inputs]
            sides = (("top_logprobs", script.top_logprobs, script.input_top_logprobs),
                     ("token_ids_logprobs", script.ids_logprobs, script.input_ids_logprobs))  # fmt: skip
            for name, outputs, of_prompt in sides:
                if outputs is not None and outputs[first : self._sent]:
                    meta[f"output_{name}"] = [self._row(row) for row in outputs[first : self._sent]]
                if with_input and self._sent and of_prompt:
                    meta[f"input_{name}"] = [self._row(row) for row in of_prompt]
        chunk: dict[str, Any] = {"text": delta if self._profile.incremental else self._text}
        ids = list(script.token_ids[first : self._sent])
        if ids:
            chunk["output_ids"] = ids
        chunk["meta_info"] = meta
        return chunk

    def _entry(self, logprob: float | None, token_id: int) -> list[Any]:
        return [logprob, token_id, self._script.text_of(token_id) if self._script.text_in_logprobs else None]

    def _row(self, entries: Alternatives) -> list[Any] | None:
        return [self._entry(*entry) for entry in entries] if entries else None


class GrpcGatewayOutput:
    """One output of the gRPC gateway: text cumulative, ids deltas, an extra last event that repeats the last id."""

    def __init__(self, script: Script, profile: Profile, *, index: int = 0) -> None:
        self._script = script
        self._pairs = profile.family == "grpc_pd"
        self._index = index
        self._pending: list[dict[str, Any]] = []
        self._sent = 0
        self._text = ""
        self._held = Held(script)

    @property
    def pending(self) -> bool:
        """A chunk waits to be taken."""
        return bool(self._pending)

    def send(self, new_tokens: int, *, last: bool) -> None:
        """So many new tokens, decoded for themselves: a character cut in two becomes replacement characters."""
        script = self._script
        start, self._sent = self._sent, self._sent + new_tokens
        # Special tokens are skipped: a stop token is one.
        has_stop_token = isinstance((script.finish.reason or {}).get("matched"), int)
        end = min(self._sent, len(script.pieces) - has_stop_token)
        self._text += b"".join(script.pieces[start:end]).decode("utf-8", "replace")
        if new_tokens or not last:
            self._pending.append(self._event(list(script.token_ids[start : self._sent]), finished=False))
        if last:
            self.abort()

    def abort(self) -> None:
        """The backend is done."""
        self._pending.append(self._event(list(self._script.token_ids[: self._sent][-1:]), finished=True))

    def take(self) -> list[dict[str, Any]]:
        """All events: nothing is joined or dropped."""
        pending, self._pending = self._pending, []
        return pending

    def held_after(self, payload: dict[str, Any]) -> Held:
        """What a client holds once this event has arrived."""
        meta = payload["meta_info"]
        counted = meta["completion_tokens"]
        rows = meta.get("output_token_logprobs") or ()
        self._held = Held(self._script, counted, counted, len(rows), payload["text"], meta["finish_reason"])
        return self._held

    def _event(self, ids: list[int], *, finished: bool) -> dict[str, Any]:
        script = self._script
        meta: dict[str, Any] = {
            "id": f"{script.rid}-{self._index}",
            "finish_reason": self._reason() if finished else None,
            "prompt_tokens": len(script.prompt_ids),
            "weight_version": script.weight_version or "default",
        }
        if self._pairs:
            rows = zip(script.logprobs or (), script.token_ids, strict=False)
            known = [[logprob, float(token_id)] for logprob, token_id in rows][: self._sent]
            asked = script.logprobs is not None
            inputs = [[logprob, float(token_id)] for logprob, token_id in script.input_logprobs]
            meta["input_token_logprobs"] = inputs if asked else None
            meta["output_token_logprobs"] = known if asked and self._sent else None
        meta["completion_tokens"] = self._sent
        meta["cached_tokens"] = script.cached_tokens
        meta["reasoning_tokens"] = min(script.reasoning_tokens, self._sent)
        if finished:
            meta["e2e_latency"] = script.e2e_latency
        return {"text": self._text, "output_ids": ids, "meta_info": meta}

    def _reason(self) -> Any:
        kind = (self._script.finish.reason or {"type": "abort"})["type"]
        if not self._pairs or kind == "abort":
            return kind
        return {"type": "stop"} if kind == "stop" else {"type": "length", "length": self._sent}
