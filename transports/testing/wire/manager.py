"""One request inside SGLang's tokenizer manager: scheduler outputs in, chunks out.

The scheduler sends new tokens (:meth:`ManagedOutput.send`) or says that a queued request is gone
(:meth:`ManagedOutput.abort`); each makes a chunk that waits in a list (``_handle_batch_output``,
``_handle_abort_req``).  When the HTTP side comes round (:meth:`ManagedOutput.take`) what waits is joined, or all but
the newest is dropped (``_wait_one_response``).  What a chunk's lists contain is settled when it is serialised.  Paths
are in ``sglang/srt/managers/tokenizer_manager.py``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from .detokenizer import Detokenizer
from .held import Held
from .meta import MetaLists

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Script


class StreamFailedError(Exception):
    """The server raised inside the stream: nothing follows but ``error`` and ``[DONE]``, or a torn body.

    :ivar error: the error event's payload; None when the connection is cut without ``[DONE]``.
    """

    def __init__(self, error: dict[str, Any] | None) -> None:
        super().__init__(error)
        self.error = error


class ManagedOutput:
    """``ReqState`` and the generator that empties it, for one output.

    :param stream: False for the state of a non-streaming response: cumulative, whatever the flags are.
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
        self._meta = MetaLists(script, profile)
        self._pending: list[dict[str, Any]] = []
        self._finished = False
        self._taken_before = False
        self._sent = 0
        self._text = ""
        self._ids: list[int] = []
        self._held = Held(script)
        # Of the chunk that was taken last: it is a queue abort's; so many prompt ids lead its output_ids.
        self._abort_taken = False
        self._tail_taken = 0
        self._tail_chunk: dict[str, Any] | None = None

    @property
    def pending(self) -> bool:
        """A chunk waits to be taken."""
        return bool(self._pending)

    def send(self, new_tokens: int, *, last: bool) -> None:
        """So many new tokens; ``last`` carries the finish reason (``_handle_batch_output``)."""
        script, profile = self._script, self._profile
        start, self._sent = self._sent, self._sent + new_tokens
        meta = self._meta_info(start, last=last)
        delta_text = "" if profile.tokens_only else self._detokenizer.step(self._sent, finished=last)
        self._text += delta_text
        tail = script.prompt_ids[-profile.prompt_tail :] if profile.prompt_tail and not self._ids else ()
        delta_ids = [*tail, *script.token_ids[start : self._sent]]
        if self._rows_incremental:
            # Whatever a list's own length is, it is cut where the ids were.
            for key in self._meta.delta_keys:
                if key in meta:
                    meta[key] = meta[key][len(self._ids) :]
        self._ids.extend(delta_ids)
        if last:
            self._finished = True
            at_the_end = [{"e2e_latency": script.e2e_latency}, script.terminal_meta]
            for part in at_the_end if profile.speculation_last else reversed(at_the_end):
                meta.update(part)
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
        reason = script.finish.reason
        meta: dict[str, Any] = {"id": script.rid}
        if profile.queue_abort == "bare":
            chunk: dict[str, Any] = {"meta_info": meta}
            if reason is not None:
                meta["finish_reason"] = dict(reason)
            else:
                meta["finish_reason"] = {"type": "abort", "message": "Abort before prefill"}
                meta.update(prompt_tokens=0, completion_tokens=0)
                chunk = {"text": "", **chunk}
            self._pending.append(chunk)
            return
        meta["finish_reason"] = dict(reason or {"type": "abort", "message": "Abort in waiting queue"})
        if profile.cache_details:
            meta["weight_version"] = script.version_at(self._sent)
            meta["e2e_latency"] = script.e2e_latency
        if profile.weight_versions:
            self._meta.put_weight_versions(meta, self._sent)
        if script.logprobs is not None:
            self._meta.put_rows(meta, self._sent)
        meta["completion_tokens"] = len(self._ids)
        ids = self._ids[-1:] if self._stream and profile.queue_abort == "last" else self._ids
        chunk = {"text": self._text, "output_ids": ids, "meta_info": meta}
        if profile.version >= (0, 5, 20):
            self._put_prompt_ids(chunk)
        self._pending.append(chunk)

    def take(self) -> list[dict[str, Any]]:
        """What the reader gets now: one chunk, still holding live lists.

        :raises StreamFailedError: where the server raises instead of answering.
        """
        pending, self._pending = self._pending, []
        profile, script = self._profile, self._script
        if self._stream and profile.coalesces and len(pending) > 1:
            chunk = self._join(pending)
        else:
            chunk = pending[-1]
            if self._stream and not profile.incremental and profile.version >= (0, 5, 23):
                for key in self._meta.custom_keys:
                    chunk["meta_info"].setdefault(key, self._meta.custom_so_far(key))
        if chunk.get("text", "") is None:
            chunk["text"] = self._text
        if profile.sent_key is not None and not self._taken_before:
            chunk["meta_info"][profile.sent_key] = script.sent_ts
        self._taken_before = True
        self._abort_taken = self._finished and script.finish.how == "queued"
        self._tail_taken = min(profile.prompt_tail, len(script.prompt_ids)) if chunk is self._tail_chunk else 0
        status = script.finish.abort_status if self._finished else None
        if status is not None and profile.aborts_raise and self._stream:
            if status == 400:
                raise StreamFailedError({"error": profile.error((script.finish.reason or {})["message"])})
            if status == 503 or (status == 500 and profile.version >= (0, 5, 1)):
                raise StreamFailedError(None)
        return [chunk]

    def held_after(self, payload: dict[str, Any]) -> Held:
        """What a client holds once this chunk, as it was serialised, has arrived."""
        script, profile, held = self._script, self._profile, self._held
        meta = payload["meta_info"]
        reason = meta["finish_reason"]
        if script.finish.how == "rejected":
            # One token of a prompt that was never sent.
            self._held = replace(held, counted=meta["completion_tokens"], finish_reason=reason)
            return self._held
        if self._abort_taken and profile.queue_abort == "bare":
            # It counts no tokens, whatever was sent before.
            self._held = replace(held, finish_reason=reason)
            return self._held
        counted = meta["completion_tokens"]
        rows = self._rows_after(meta)
        tokens = self._ids_after(payload, counted)
        if script.logprobs is not None:
            tokens = max(tokens, min(rows, len(script.token_ids)))
        text = payload.get("text") or ""
        if self._abort_taken:
            text = self._text
        elif self._text_incremental:
            text = held.text + text
        lost = profile.has_ids and tokens < counted
        self._held = Held(script, tokens, counted, rows, text, reason, lost=lost)
        return self._held

    def _ids_after(self, payload: dict[str, Any], counted: int) -> int:
        """How many ids are known from ids alone."""
        profile, known = self._profile, self._held.tokens
        if not profile.has_ids:
            return 0
        if self._abort_taken:
            # All ids, or the last one, after what was pending where deltas are joined.
            told = profile.queue_abort == "full" or profile.coalesces or counted - known <= 1
            return counted if told else known
        if not self._ids_incremental:
            return len(payload["output_ids"])
        whole = not self._held.lost and known + len(payload["output_ids"]) - self._tail_taken == counted
        return counted if whole else known

    def _rows_after(self, meta: dict[str, Any]) -> int:
        if self._script.logprobs is None:
            return 0
        length = len(meta["output_token_logprobs"])
        if not self._rows_incremental:
            return length
        return int(meta["output_token_logprobs_length"]) if self._abort_taken else self._held.rows + length

    def _meta_info(self, start: int, *, last: bool) -> dict[str, Any]:
        script, profile, end = self._script, self._profile, self._sent
        rejected = script.finish.how == "rejected"
        meta: dict[str, Any] = {
            "id": script.rid,
            "finish_reason": dict(script.finish.reason or {}) if last else None,
            "prompt_tokens": 1 if rejected else len(script.prompt_ids),
        }
        if profile.weight_version:
            meta["weight_version"] = script.version_at(end)
        if profile.retractions_key is not None:
            meta[profile.retractions_key] = script.retractions
        meta.update(script.meta)
        if script.logprobs is not None and (not rejected or profile.rejected_rows):
            if not rejected:
                self._meta.grow_rows(start, end, last=last)
            # A rejected request has the keys and nothing in them: the scheduler forgets that it asked.
            self._meta.put_rows(meta, end)
        if not rejected:
            self._meta.put_mask(meta, start, end)
        if profile.rows_length:
            meta["reasoning_tokens"] = min(script.reasoning_tokens, end)
        meta["completion_tokens"] = end
        meta["cached_tokens"] = script.cached_tokens
        if last and profile.weight_versions:
            self._meta.put_weight_versions(meta, end)
        if profile.cache_details:
            meta["cached_tokens_details"] = script.cached_tokens_details
        self._meta.put_accumulated(meta, start, end)
        if profile.modal_tokens:
            meta.update((key, count) for key, count in script.modal_tokens.items() if count)
        self._meta.put_hidden_states(meta, end)
        self._meta.put_routing(meta, last=last)
        self._meta.put_custom(meta, start, end)
        if profile.rows_length:
            meta["dp_rank"] = script.dp_rank
        return meta

    def _text_now(self, *, last: bool) -> str | None:
        """All text; None where it is read when the chunk is taken."""
        return None if self._stream and self._profile.late_text and not last else self._text

    def _ids_now(self, *, last: bool) -> list[int]:
        """All ids: a list that grows on, or a copy."""
        return self._ids if self._profile.live_ids and not last else list(self._ids)

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
        for key in self._meta.delta_keys:
            if any(key in part for part in metas):
                meta[key] = list(chain.from_iterable(part.get(key, ()) for part in metas))
        chunk["meta_info"] = meta
        return chunk
