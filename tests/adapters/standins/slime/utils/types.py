"""``Sample``: fields, the way tokens are appended, and everything that is checked then."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from .misc import decode_int32_meta_array

_IDS = ("top_p_token_ids", "top_p_kept_token_ids")
_OFFSETS = ("top_p_token_offsets", "top_p_kept_token_offsets")


def _flat(value: Any) -> Any:
    return np.asarray(value, dtype=np.int32).reshape(-1)


def _rows_in(meta_info: dict[str, Any], tokens: int) -> tuple[Any, Any] | None:
    ids, offsets = decode_int32_meta_array(meta_info, _IDS), decode_int32_meta_array(meta_info, _OFFSETS)
    if ids is None and offsets is None:
        return None
    if ids is None or offsets is None:
        raise ValueError("top-p replay must include both ids and offsets")
    if not offsets.size or offsets[0] != 0:
        raise ValueError(f"top-p offsets must start with 0, got {offsets[:1].tolist()}")
    if offsets[-1] != ids.size:
        raise ValueError(f"top-p ids/offsets mismatch: {offsets[-1]} != {ids.size}")
    if offsets.size != tokens + 1:
        raise ValueError(f"top-p offsets length must equal generated tokens + 1: {offsets.size}, {tokens}")
    return ids, offsets


@dataclass
class SpecInfo:
    spec_accept_token_num: int = 0
    spec_draft_token_num: int = 0
    spec_verify_ct: int = 0
    completion_token_num: int = 0

    def add(self, meta_info: dict[str, Any]) -> None:
        self.spec_accept_token_num += meta_info.get("spec_accept_token_num", 0)
        self.spec_draft_token_num += meta_info.get("spec_draft_token_num", 0)
        self.spec_verify_ct += meta_info.get("spec_verify_ct", 0)
        self.completion_token_num += meta_info.get("completion_tokens", 0)


@dataclass
class PrefixCacheInfo:
    cached_tokens: int = 0
    total_prompt_tokens: int = 0

    def add(self, meta_info: dict[str, Any]) -> None:
        self.cached_tokens += meta_info.get("cached_tokens", 0)
        self.total_prompt_tokens += meta_info.get("prompt_tokens", 0)


@dataclass
class Sample:
    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    group_index: int | None = None
    index: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list[int])
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list[str])
    rollout_log_probs: list[float] | None = None
    rollout_top_p_token_ids: Any = None
    rollout_top_p_token_offsets: Any = None
    rollout_routed_experts: Any = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    generate_function_path: str | None = None
    session_id: str | None = None
    trace: dict[str, Any] | None = None
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)

    def append_response_tokens(
        self,
        args: Any = None,
        *,
        tokens: Any = None,
        log_probs: Any = None,
        trainable: bool = True,
        meta_info: dict[str, Any] | None = None,
        text: str | None = None,
        update_terminal_info: bool = True,
    ) -> None:
        new = [int(token) for token in ([] if tokens is None else tokens)]
        scores = None if log_probs is None else [float(score) for score in log_probs]
        if scores is not None and len(scores) != len(new):
            raise ValueError(f"log_probs length {len(scores)} != tokens length {len(new)}")
        if new and trainable and scores is None:
            raise ValueError("trainable response tokens require rollout log probabilities")
        if new and not trainable:
            if scores is not None:
                raise ValueError("non-trainable response tokens should not pass log probabilities")
            scores = [0.0] * len(new)
        before = self.response_length
        if text is not None:
            self.response += text
        if new:
            self.tokens += new
            self.response_length += len(new)
            if self.loss_mask is None:
                self.loss_mask = [1] * before
            self.loss_mask += [int(trainable)] * len(new)
        if scores is not None:
            if self.rollout_log_probs is None:
                if trainable and before:
                    raise ValueError(
                        "Cannot append trainable rollout log probabilities to a sample with existing response tokens"
                        " but no existing rollout_log_probs."
                    )
                self.rollout_log_probs = [0.0] * before
            self.rollout_log_probs += scores
        pad = bool(new) and not trainable
        if meta_info is not None or pad:
            self._take_meta(args, meta_info or {}, len(new), pad=pad, terminal=update_terminal_info)
        self._check()

    def _take_meta(self, args: Any, meta_info: dict[str, Any], count: int, *, pad: bool, terminal: bool) -> None:
        rows = _rows_in(meta_info, count) if count else None
        if rows is not None:
            ids = [] if self.rollout_top_p_token_ids is None else self.rollout_top_p_token_ids
            offsets = _flat([0] if self.rollout_top_p_token_offsets is None else self.rollout_top_p_token_offsets)
            self.rollout_top_p_token_ids = np.concatenate([_flat(ids), rows[0]])
            self.rollout_top_p_token_offsets = np.concatenate([offsets, rows[1][1:] + offsets[-1]])
        elif pad and self.rollout_top_p_token_offsets is not None:
            offsets = _flat(self.rollout_top_p_token_offsets)
            self.rollout_top_p_token_offsets = np.concatenate([offsets, np.full(count, offsets[-1], np.int32)])
        self._take_experts(args, meta_info)
        if not terminal or "finish_reason" not in meta_info:
            return
        if getattr(args, "sglang_speculative_algorithm", False):
            self.spec_info.add(meta_info)
        self.prefix_cache_info.add(meta_info)
        if count and "weight_version" in meta_info:
            self.weight_versions.append(meta_info["weight_version"])
        status = Sample.Status
        reached = {"length": status.TRUNCATED, "abort": status.ABORTED, "stop": status.COMPLETED}
        self.status = reached.get(meta_info["finish_reason"]["type"], self.status)

    def _take_experts(self, args: Any, meta_info: dict[str, Any]) -> None:
        experts = decode_int32_meta_array(meta_info, "routed_experts")
        if experts is None:
            return
        if args is None:
            raise ValueError("args is required to decode routed experts")
        start = int(meta_info.get("routed_experts_start_len", 0) or 0)
        if start < 0:
            raise ValueError(f"routed_experts_start_len must be non-negative, got {start}")
        shape = (max(0, len(self.tokens) - 1 - start), args.num_layers, args.moe_router_topk)
        if experts.size != shape[0] * shape[1] * shape[2]:
            raise ValueError(f"routed_experts element count does not match sample tokens: {experts.size}, {shape}")
        experts = experts.reshape(shape)
        if start:
            if self.rollout_routed_experts is None:
                raise ValueError("Cannot append partial routed experts without existing routed experts")
            if len(self.rollout_routed_experts) < start:
                raise ValueError("existing routed experts shorter than routed_experts_start_len")
            experts = np.concatenate([self.rollout_routed_experts[:start], experts])
        self.rollout_routed_experts = experts

    def _check(self) -> None:
        length = self.response_length
        if self.loss_mask is not None and len(self.loss_mask) != length:
            raise ValueError(f"loss_mask length {len(self.loss_mask)} != response_length {length}")
        if self.rollout_log_probs is not None and len(self.rollout_log_probs) != length:
            raise ValueError(f"rollout_log_probs length {len(self.rollout_log_probs)} != response_length {length}")
        ids, offsets = self.rollout_top_p_token_ids, self.rollout_top_p_token_offsets
        if ids is None and offsets is None:
            return
        if ids is None or offsets is None:
            raise ValueError("rollout top-p replay must include both token ids and offsets")
        if len(offsets) != length + 1:
            raise ValueError(f"top-p offsets length must equal response_length + 1: {len(offsets)}, {length}")
        if offsets[-1] != len(ids):
            raise ValueError(f"rollout top-p token ids/offsets mismatch: {offsets[-1]}, {len(ids)}")
