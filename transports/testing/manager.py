"""One request inside SGLang's tokenizer manager: scheduler outputs in, chunks out.

The scheduler sends new tokens (:meth:`ManagedOutput.send`) or says that a queued request is gone
(:meth:`ManagedOutput.abort`); each makes a chunk that waits in a list (``_handle_batch_output``,
``_handle_abort_req``).  When the HTTP side comes round (:meth:`ManagedOutput.take`) what waits is joined, or all but the
newest is dropped (``_wait_one_response``).  Chunks hold the server's own lists; what these contain is settled when the
chunk is serialised.  Paths are in ``sglang/srt/managers/tokenizer_manager.py``.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from .detokenizer import Detokenizer
from .held import Held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .profiles import Profile
    from .script import Alternatives, Routing, Script

_ROW_KEYS = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")
_MASK_KEYS = ("output_token_sampling_mask", "output_token_sampling_logprobs")


class StreamFailedError(Exception):
    """The server raised inside the stream: nothing follows but ``error`` and ``[DONE]``, or a torn body.

    :ivar error: the error event's payload; None when the connection is cut without ``[DONE]``.
    """

    def __init__(self, error: dict[str, Any] | None) -> None:
        super().__init__(error)
        self.error = error


class ManagedOutput:
    """``ReqState`` and the two generators around it, for one output.

    :param stream: False for the state behind a non-streaming response: cumulative, whatever the flags are.
    """

    def __init__(self, script: Script, profile: Profile, *, stream: bool = True) -> None:
        self._script = script
        self._profile = profile
        self._stream = stream
        self._ids_incremental = stream and profile.ids_incremental
        self._text_incremental = stream and profile.text_incremental
        self._rows_incremental = stream and profile.rows_incremental
        self._detokenizer = Detokenizer(
            script, cuts_untrimmed=profile.cuts_untrimmed, trims_token_zero=profile.trims_token_zero
        )
        self._pending: list[dict[str, Any]] = []
        self._finished = False
        self._first_taken = False
        self._sent = 0
        self._text = ""
        self._ids: list[int] = []
        self._lists: dict[str, list[Any]] = {}
        self._custom: list[str] = []
        self._abort_taken = False
        self._tail_chunk: dict[str, Any] | None = None
        self._tail_taken = 0
        self._held = Held(script)

    # ---- the scheduler's side

    @property
    def pending(self) -> bool:
        """A chunk waits to be taken."""
        return bool(self._pending)

    def send(self, new_tokens: int, *, last: bool) -> None:
        """So many new tokens; ``last`` carries the finish reason (``_handle_batch_output``)."""
        script, profile = self._script, self._profile
        start, self._sent = self._sent, self._sent + new_tokens
        rejected = script.finish.how == "rejected"
        reason = dict(script.finish.reason or {}) if last else None

        meta: dict[str, Any] = {
            "id": script.rid,
            "finish_reason": reason,
            "prompt_tokens": 1 if rejected else len(script.prompt_ids),
        }
        if profile.weight_version:
            meta["weight_version"] = script.version_at(self._sent)
        if profile.retractions_key is not None:
            meta[profile.retractions_key] = script.retractions
        meta.update(script.meta)
        if script.logprobs is not None and (not rejected or profile.rejected_rows):
            if not rejected:
                self._grow_rows(start, last=last)
            self._put_logprobs(meta)
        if script.sampling_mask is not None and profile.sampling_mask and not rejected:
            self._grow("output_token_sampling_mask", script.sampling_mask[start : self._sent])
            self._grow("output_token_sampling_logprobs", script.sampling_logprobs[start : self._sent])
            meta.update((key, self._list(key)) for key in _MASK_KEYS)
            meta["output_token_sampling_mask_length"] = len(self._lists["output_token_sampling_mask"])
        if profile.rows_length:
            meta["reasoning_tokens"] = min(script.reasoning_tokens, self._sent)
        meta["completion_tokens"] = self._sent
        meta["cached_tokens"] = script.cached_tokens
        if last and profile.weight_versions:
            self._put_weight_versions(meta)
        if profile.cache_details:
            meta["cached_tokens_details"] = script.cached_tokens_details
        if profile.custom == "list":
            for key, values in script.custom.items():
                self._grow(key, values[start : self._sent])
                meta[key] = self._list(key)
                if key not in self._custom:
                    self._custom.append(key)
        if profile.modal_tokens:
            meta.update((key, count) for key, count in script.modal_tokens.items() if count)
        if script.hidden_states is not None:
            states = script.hidden_states[: self._sent]
            if not script.hidden_last:
                meta["hidden_states"] = list(states)
            elif states:
                meta["hidden_states"] = states[-1]
        self._put_routing(meta, last=last)
        if profile.custom in ("snapshot", "delta"):
            for key, values in script.custom.items():
                meta[key] = list(values[start if profile.custom == "delta" else 0 : self._sent])
        if profile.rows_length:
            meta["dp_rank"] = script.dp_rank

        ids_before = len(self._ids)
        delta_text = "" if profile.tokens_only else self._detokenizer.step(self._sent, finished=last)
        self._text += delta_text
        tail = script.prompt_ids[-profile.prompt_tail :] if profile.prompt_tail and not self._ids else ()
        delta_ids = [*tail, *script.token_ids[start : self._sent]]
        self._ids.extend(delta_ids)
        if self._rows_incremental:
            # Whatever a list's own length is, it is cut where the ids were.
            for key in (*_ROW_KEYS, *(_MASK_KEYS if profile.sampling_mask else ()), *self._custom):
                if key in meta:
                    meta[key] = meta[key][ids_before:]
        if last:
            self._finished = True
            latency = {"e2e_latency": script.e2e_latency}
            meta.update(
                {**latency, **script.terminal_meta} if profile.speculation_last else {**script.terminal_meta, **latency}
            )
        if not self._stream and not last:
            return
        chunk: dict[str, Any] = {}
        if not profile.tokens_only:
            chunk["text"] = delta_text if self._text_incremental else self._text_now(last=last)
        if profile.has_ids:
            chunk["output_ids"] = delta_ids if self._ids_incremental else self._ids_now(last=last)
        chunk["meta_info"] = meta
        self._put_prompt_ids(chunk)
        if tail:
            self._tail_chunk = chunk
        self._pending.append(chunk)

    def abort(self) -> None:
        """The request was queued or retracted, and is gone (``_handle_abort_req``)."""
        script, profile = self._script, self._profile
        self._finished = True
        if profile.queue_abort == "bare":
            if script.finish.reason is not None:
                self._pending.append({"meta_info": {"id": script.rid, "finish_reason": dict(script.finish.reason)}})
                return
            reason = {"type": "abort", "message": "Abort before prefill"}
            meta = {"id": script.rid, "finish_reason": reason, "prompt_tokens": 0, "completion_tokens": 0}
            self._pending.append({"text": "", "meta_info": meta})
            return
        reason = dict(script.finish.reason or {"type": "abort", "message": "Abort in waiting queue"})
        meta: dict[str, Any] = {"id": script.rid, "finish_reason": reason}
        if profile.cache_details:
            meta["weight_version"] = script.version_at(self._sent)
            meta["e2e_latency"] = script.e2e_latency
        if profile.weight_versions:
            self._put_weight_versions(meta)
        if script.logprobs is not None:
            self._put_logprobs(meta)
        meta["completion_tokens"] = len(self._ids)
        ids = self._ids[-1:] if self._stream and profile.queue_abort == "last" else self._ids
        chunk: dict[str, Any] = {"text": self._text, "output_ids": ids, "meta_info": meta}
        if profile.version >= (0, 5, 20):
            self._put_prompt_ids(chunk)
        self._pending.append(chunk)

    # ---- the HTTP side

    def take(self) -> list[dict[str, Any]]:
        """What the reader gets now: at most one chunk, still holding live lists.

        :raises StreamFailedError: where the server raises instead of answering.
        """
        pending, self._pending = self._pending, []
        profile, script = self._profile, self._script
        if self._stream and profile.coalesces and len(pending) > 1:
            chunk = self._join(pending)
        else:
            chunk = pending[-1]
            if self._stream and not profile.incremental and profile.version >= (0, 5, 23):
                for key in self._custom:
                    chunk["meta_info"].setdefault(key, list(self._lists[key]))
        if chunk.get("text", "") is None:
            chunk["text"] = self._text
        if profile.sent_key is not None and not self._first_taken:
            chunk["meta_info"][profile.sent_key] = script.sent_ts
        self._first_taken = True
        self._abort_taken = self._finished and script.finish.how == "queued"
        self._tail_taken = min(profile.prompt_tail, len(script.prompt_ids)) if chunk is self._tail_chunk else 0
        status = script.finish.abort_status if self._finished else None
        if status is not None and profile.aborts_raise and self._stream:
            if status == 400:
                raise StreamFailedError({"error": {"message": (script.finish.reason or {})["message"]}})
            if status == 503 or (status == 500 and profile.version >= (0, 5, 1)):
                raise StreamFailedError(None)
        return [chunk]

    def held_after(self, payload: dict[str, Any]) -> Held:
        """What a client holds once this chunk, as it was serialised, has arrived."""
        script, profile, held = self._script, self._profile, self._held
        meta = payload["meta_info"]
        if script.finish.how == "rejected":
            self._held = replace(held, counted=meta["completion_tokens"], finish_reason=meta["finish_reason"])
            return self._held
        if self._abort_taken and profile.queue_abort == "bare":
            self._held = replace(held, finish_reason=meta["finish_reason"])
            return self._held
        counted = meta["completion_tokens"]
        sent = payload.get("output_ids", [])
        rows = self._rows_held(meta)
        tokens = held.tokens
        if self._abort_taken:
            # [last], or all, or pending deltas with the last once more: nothing new, unless chunks were dropped.
            if not (profile.queue_abort == "last" and not self._rows_are_whole()):
                tokens = counted
            elif profile.coalesces or counted - held.tokens <= 1:
                tokens = counted
        elif not profile.has_ids:
            tokens = 0
        elif not self._ids_incremental:
            tokens = len(sent)
        elif not held.lost and held.tokens + len(sent) - self._tail_taken == counted:
            tokens = counted
        if self._rows_are_whole():
            tokens = max(tokens, min(rows, len(script.token_ids)))
        text = payload.get("text") or ""
        if self._text_incremental and not self._abort_taken:
            text = held.text + text
        elif self._abort_taken:
            text = self._text
        self._held = Held(
            script,
            tokens=tokens,
            counted=counted,
            rows=rows,
            text=text,
            finish_reason=meta["finish_reason"],
            lost=profile.has_ids and tokens < counted,
        )
        return self._held

    # ---- parts

    def _rows_are_whole(self) -> bool:
        return self._script.logprobs is not None

    def _rows_held(self, meta: dict[str, Any]) -> int:
        if not self._rows_are_whole() or "output_token_logprobs" not in meta:
            return self._held.rows
        length = len(meta["output_token_logprobs"])
        if not self._rows_incremental:
            return length
        return int(meta["output_token_logprobs_length"]) if self._abort_taken else self._held.rows + length

    def _text_now(self, *, last: bool) -> str | None:
        # None: read when the chunk is taken.
        return None if self._stream and self._profile.late_text and not last else self._text

    def _ids_now(self, *, last: bool) -> list[int]:
        return self._ids if self._profile.live_ids and not last else list(self._ids)

    def _grow(self, key: str, values: Iterable[object]) -> None:
        self._lists.setdefault(key, []).extend(values)

    def _list(self, key: str) -> list[Any]:
        values = self._lists.setdefault(key, [])
        return values if self._profile.live_rows else list(values)

    def _grow_rows(self, start: int, *, last: bool) -> None:
        script = self._script
        if not self._lists.get("input_token_logprobs") and (self._sent or last):
            self._grow("input_token_logprobs", (self._row(*pair) for pair in script.input_logprobs))
            self._grow("input_top_logprobs", map(self._alternatives, script.input_top_logprobs))
            self._grow("input_token_ids_logprobs", map(self._alternatives, script.input_ids_logprobs))
        logprobs = script.logprobs or ()
        pairs = zip(logprobs[start : self._sent], script.token_ids[start : self._sent], strict=True)
        self._grow("output_token_logprobs", (self._row(*pair, position=start + i) for i, pair in enumerate(pairs)))
        if script.top_logprobs is not None:
            self._grow("output_top_logprobs", map(self._alternatives, script.top_logprobs[start : self._sent]))
        if script.ids_logprobs is not None:
            self._grow("output_token_ids_logprobs", map(self._alternatives, script.ids_logprobs[start : self._sent]))
        if last:
            kept = script.extra_rows
            if self._profile.cuts_extra_rows:
                kept = kept[: max(len(script.token_ids), 1) - len(script.token_ids)]
            self._grow("output_token_logprobs", (self._row(*pair) for pair in kept))

    def _put_logprobs(self, meta: dict[str, Any]) -> None:
        """``add_logprob_to_meta_info``."""
        script = self._script
        meta["input_token_logprobs"] = self._list("input_token_logprobs")
        meta["output_token_logprobs"] = self._list("output_token_logprobs")
        if self._profile.rows_length:
            meta["output_token_logprobs_length"] = len(self._lists["output_token_logprobs"])
        if script.top_logprobs is not None:
            meta["input_top_logprobs"] = self._list("input_top_logprobs")
            meta["output_top_logprobs"] = self._list("output_top_logprobs")
        if script.ids_logprobs is not None:
            meta["input_token_ids_logprobs"] = self._list("input_token_ids_logprobs")
            meta["output_token_ids_logprobs"] = self._list("output_token_ids_logprobs")
        kept = [row for row in script.top_p_rows[: self._sent] if row is not None]
        if self._profile.slime and kept and meta["finish_reason"] is not None:
            offsets = [0]
            for row in kept:
                offsets.append(offsets[-1] + len(row))
            meta["top_p_token_ids"] = int32_base64(chain.from_iterable(kept))
            meta["top_p_token_offsets"] = int32_base64(offsets)

    def _put_weight_versions(self, meta: dict[str, Any]) -> None:
        spans = [span for span in self._script.spans if span.start < self._sent or span.start == 0]
        meta["weight_versions"] = [
            {"version": span.version, "start": span.start, "end": min(span.end, self._sent)} for span in spans
        ]
        meta["weight_version"] = spans[-1].version

    def _put_routing(self, meta: dict[str, Any], *, last: bool) -> None:
        script, profile = self._script, self._profile
        if script.routed_experts is not None and profile.routed_experts != "absent":
            if last:
                meta["routed_experts"] = routing_base64(script.routed_experts, crop=profile.crops_routing)
            elif profile.routed_experts == "null":
                meta["routed_experts"] = None
        if script.indexer_topk is not None and profile.indexer_topk and last:
            meta["indexer_topk"] = routing_base64(script.indexer_topk, crop=False)

    def _put_prompt_ids(self, chunk: dict[str, Any]) -> None:
        if self._script.return_prompt_token_ids and self._profile.prompt_token_ids:
            chunk["prompt_token_ids"] = list(self._script.prompt_ids)

    def _join(self, pending: list[dict[str, Any]]) -> dict[str, Any]:
        """``_coalesce_streaming_chunks``: the last chunk, with the deltas of all."""
        chunk = dict(pending[-1])
        chunk["output_ids"] = list(chain.from_iterable(part["output_ids"] for part in pending))
        if "text" in chunk:
            if any("text" not in part for part in pending):
                # A queue abort has a text even where no chunk before it has: the server fails with a KeyError.
                raise StreamFailedError(None)
            chunk["text"] = "".join(part["text"] for part in pending)
        if not self._rows_incremental:
            return chunk
        metas: list[dict[str, Any]] = [part["meta_info"] for part in pending]
        meta = dict(metas[-1])
        for key in (*_ROW_KEYS, *(_MASK_KEYS if self._profile.sampling_mask else ()), *self._custom):
            if any(key in part for part in metas):
                meta[key] = list(chain.from_iterable(part.get(key, ()) for part in metas))
        chunk["meta_info"] = meta
        return chunk

    def _row(self, logprob: float | None, token_id: int, *, position: int | None = None) -> list[Any]:
        return [logprob, token_id, self._text_of(token_id, position)]

    def _alternatives(self, entries: Alternatives) -> list[Any] | None:
        return [self._row(*entry) for entry in entries] if entries else None

    def _text_of(self, token_id: int, position: int | None) -> str | None:
        script = self._script
        if not script.text_in_logprobs or self._profile.tokens_only:
            return None
        if position is None:
            position = script.token_ids.index(token_id) if token_id in script.token_ids else None
        if position is None:
            return script.vocabulary.get(token_id, "?")
        return script.pieces[position].decode("utf-8", "replace")


def int32_base64(values: Iterable[int]) -> str:
    """Base64 of little-endian int32, as replay arrays travel."""
    numbers = tuple(values)
    return base64.b64encode(struct.pack(f"<{len(numbers)}i", *numbers)).decode("ascii")


def routing_base64(routing: Routing, *, crop: bool) -> str:
    """A replay array's rows, from ``start_len`` on where the server crops."""
    rows = routing.rows[min(routing.start_len, len(routing.rows)) if crop else 0 :]
    return int32_base64(chain.from_iterable(rows))
