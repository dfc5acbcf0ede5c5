"""``meta_info`` of one output: the per-token lists that a server grows, and the keys that it writes them under.

The lists here are the server's own.  A chunk gets the list itself where the version hands out references (it then grows
until it is serialised), a copy where it does not.  Paths are in ``sglang/srt/managers/tokenizer_manager.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .int32 import routing_base64, rows_base64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..profiles import Profile
    from ..script import Alternatives, Script

ROW_KEYS = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")
MASK_KEYS = ("output_token_sampling_mask", "output_token_sampling_logprobs")


class MetaLists:
    """What has been generated so far, as lists, and how it is written."""

    def __init__(self, script: Script, profile: Profile) -> None:
        self._script = script
        self._profile = profile
        self._lists: dict[str, list[Any]] = {}
        self._prompt_told = False
        self.custom_keys: list[str] = []
        """The ``customized_info`` keys that have been sent so far, where the version accumulates them."""

    @property
    def delta_keys(self) -> tuple[str, ...]:
        """What an incremental server cuts and joins (``_INCREMENTAL_STREAMING_META_INFO_KEYS`` and custom keys)."""
        mask = MASK_KEYS if self._profile.sampling_mask else ()
        return (*ROW_KEYS, *mask, *self.custom_keys)

    def custom_so_far(self, key: str) -> list[Any]:
        """A copy of an accumulated custom list."""
        return list(self._lists[key])

    def grow_rows(self, start: int, end: int, *, last: bool) -> None:
        """Tokens ``[start, end)`` and, once there is any, the prompt have logprobs (``convert_logprob_style``)."""
        script = self._script
        if not self._prompt_told and (end or last):
            self._prompt_told = True
            self._grow("input_token_logprobs", (self._row(*pair) for pair in script.input_logprobs))
            self._grow("input_top_logprobs", map(self._alternatives, script.input_top_logprobs))
            self._grow("input_token_ids_logprobs", map(self._alternatives, script.input_ids_logprobs))
        logprobs = (script.logprobs or ())[start:end]
        rows = zip(logprobs, script.token_ids[start:end], range(start, end), strict=True)
        self._grow("output_token_logprobs", (self._row(*row) for row in rows))
        if script.top_logprobs is not None:
            self._grow("output_top_logprobs", map(self._alternatives, script.top_logprobs[start:end]))
        if script.ids_logprobs is not None:
            self._grow("output_token_ids_logprobs", map(self._alternatives, script.ids_logprobs[start:end]))
        if last:
            extra = script.extra_rows
            if self._profile.cuts_extra_rows:
                # Rows are cut to max(len(ids), 1).
                extra = extra[: 0 if script.token_ids else 1]
            self._grow("output_token_logprobs", (self._row(*pair) for pair in extra))

    def put_rows(self, meta: dict[str, Any], end: int) -> None:
        """``add_logprob_to_meta_info``, with slime's top-p rows where a finish reason is in ``meta``."""
        script = self._script
        meta.update((key, self._told(key)) for key in ("input_token_logprobs", "output_token_logprobs"))
        if self._profile.rows_length:
            meta["output_token_logprobs_length"] = len(self._lists.get("output_token_logprobs", ()))
        if script.top_logprobs is not None:
            meta.update((key, self._told(key)) for key in ("input_top_logprobs", "output_top_logprobs"))
        if script.ids_logprobs is not None:
            meta.update((key, self._told(key)) for key in ("input_token_ids_logprobs", "output_token_ids_logprobs"))
        kept = [row for row in script.top_p_rows[:end] if row is not None]
        if self._profile.slime and kept and meta["finish_reason"] is not None:
            meta["top_p_token_ids"], meta["top_p_token_offsets"] = rows_base64(kept)

    def put_mask(self, meta: dict[str, Any], start: int, end: int) -> None:
        """``return_sampling_mask``."""
        script = self._script
        if script.sampling_mask is None or not self._profile.sampling_mask:
            return
        self._grow("output_token_sampling_mask", map(list, script.sampling_mask[start:end]))
        self._grow("output_token_sampling_logprobs", script.sampling_logprobs[start:end])
        meta.update((key, self._told(key)) for key in MASK_KEYS)
        meta["output_token_sampling_mask_length"] = len(self._lists["output_token_sampling_mask"])

    def put_accumulated(self, meta: dict[str, Any], start: int, end: int) -> None:
        """``customized_info`` where it is accumulated (since 0.5.13)."""
        if self._profile.custom != "list":
            return
        for key, values in self._script.custom.items():
            self._grow(key, values[start:end])
            meta[key] = self._told(key)
            if key not in self.custom_keys:
                self.custom_keys.append(key)

    def put_custom(self, meta: dict[str, Any], start: int, end: int) -> None:
        """``customized_info`` as the scheduler sent it (0.5.8 to 0.5.12)."""
        if self._profile.custom in ("snapshot", "delta"):
            first = start if self._profile.custom == "delta" else 0
            meta.update((key, list(values[first:end])) for key, values in self._script.custom.items())

    def put_hidden_states(self, meta: dict[str, Any], end: int) -> None:
        """All states so far, or the newest one."""
        if self._script.hidden_states is None:
            return
        states = list(self._script.hidden_states[:end])
        if not self._script.hidden_last:
            meta["hidden_states"] = states
        elif states or self._profile.null_hidden_states:
            meta["hidden_states"] = states[-1] if states else None

    def put_routing(self, meta: dict[str, Any], *, last: bool) -> None:
        """``routed_experts`` and ``indexer_topk``."""
        script, profile = self._script, self._profile
        if script.routed_experts is not None and profile.routed_experts != "absent":
            if last:
                meta["routed_experts"] = routing_base64(script.routed_experts, crop=profile.crops_routing)
            elif profile.routed_experts == "null":
                meta["routed_experts"] = None
        if script.indexer_topk is not None and profile.indexer_topk and last:
            meta["indexer_topk"] = routing_base64(script.indexer_topk, crop=False)

    def put_weight_versions(self, meta: dict[str, Any], end: int) -> None:
        """``add_weight_versions_to_meta_info``: the spans, and the version of the last of them."""
        spans = [span for span in self._script.spans if span.start < end or span.start == 0]
        meta["weight_versions"] = [
            {"version": span.version, "start": span.start, "end": min(span.end, end)} for span in spans
        ]
        meta["weight_version"] = spans[-1].version

    def _grow(self, key: str, values: Iterable[object]) -> None:
        self._lists.setdefault(key, []).extend(values)

    def _told(self, key: str) -> list[Any]:
        values = self._lists.setdefault(key, [])
        return values if self._profile.live_rows else list(values)

    def _row(self, logprob: float | None, token_id: int, position: int | None = None) -> list[Any]:
        return [logprob, token_id, self._text_of(token_id, position)]

    def _alternatives(self, entries: Alternatives) -> list[Any] | None:
        return [self._row(*entry) for entry in entries] if entries else None

    def _text_of(self, token_id: int, position: int | None) -> str | None:
        if not self._script.text_in_logprobs or self._profile.tokens_only:
            return None
        return self._script.text_of(token_id, position)
