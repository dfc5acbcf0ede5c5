"""One call's tokens onto miles' ``Sample``, from the state before the call.

Replay arrays become NumPy arrays, and what the terminal chunk says goes through the sample's own
``update_from_meta_info``.  Source: miles ``utils/types.py`` and ``rollout/generate_utils/generate_endpoint_utils.py``.
Knows nothing of streams and requests.
"""

from __future__ import annotations

from typing import Any

from ssefold import PayloadError, ReplayArray, ReplayError, ServerError, Update


class MilesCall:
    """A sample during one call.

    :param args: miles' arguments, handed through; ``num_layers`` places routed experts.
    :param sample: changed in place; its lists are replaced by copies, so that nobody else's grow.
    """

    def __init__(self, args: Any, sample: Any) -> None:
        self._args = args
        self._sample = sample
        self.response: str = sample.response or ""
        self._tokens = len(sample.tokens)
        self._response_length: int = sample.response_length
        self._had_log_probs = sample.rollout_log_probs is not None
        if not self._had_log_probs and self._response_length:
            raise ValueError(
                f"the sample has {self._response_length} response tokens and no rollout_log_probs: tokens that are"
                " appended now could not be aligned"
            )
        sample.tokens = list(sample.tokens)
        sample.rollout_log_probs = list(sample.rollout_log_probs or [])
        if sample.loss_mask is not None:
            sample.loss_mask = list(sample.loss_mask)

    def apply(self, update: Update, tokens: list[int], log_probs: list[float | None]) -> None:
        """Append what an update brings.

        :param tokens: new ones with a logprob, or with ``update.replace`` all of this call's.
        :raises ValueError: the output can not be trained on, or a replay array does not fit.
        """
        sample = self._sample
        finish = update.finish_reason
        if finish is not None and finish.type == "stop" and finish.is_failure:
            raise ServerError(
                f"the sampler drew an id outside the vocabulary (finish_reason.matched {finish.matched!r}): logits were"
                " NaN, and the output is no sample. Look at the weights that were loaded last"
            )
        if None in log_probs:
            raise PayloadError(
                f"the logprob of token {tokens[log_probs.index(None)]} is null, which is how SGLang writes NaN and"
                " infinity: it can not be trained on. Look at the sampler's numerics"
            )
        if update.replace:
            del sample.tokens[self._tokens :], sample.rollout_log_probs[self._response_length :]
            if sample.loss_mask is not None:
                del sample.loss_mask[self._response_length :]
        sample.tokens += tokens
        sample.rollout_log_probs += log_probs
        sample.response_length = len(sample.tokens) - self._tokens + self._response_length
        if sample.loss_mask is not None:
            sample.loss_mask += [1] * len(tokens)
        if finish is not None:
            self._finish(update)

    def cut(self) -> None:
        """The call has ended without a terminal chunk: arrays of an earlier call do not describe its tokens."""
        sample = self._sample
        if len(sample.tokens) > self._tokens:
            sample.rollout_routed_experts = None
            if hasattr(sample, "rollout_indexer_topk"):
                sample.rollout_indexer_topk = None
        elif not self._had_log_probs:
            sample.rollout_log_probs = None

    def _finish(self, update: Update) -> None:
        sample, meta = self._sample, update.meta_info
        experts = update.routed_experts
        sample.rollout_routed_experts = None if experts is None else self._placed(experts, self._args.num_layers)
        if update.indexer_topk is not None:
            layers = meta.get("indexer_topk_num_layers")
            if type(layers) is not int or layers < 1:
                raise ReplayError(
                    f"indexer_topk came with indexer_topk_num_layers {layers!r}: a whole number from 1 is needed to"
                    " place it. Is it miles' own SGLang?"
                )
            sample.rollout_indexer_topk = self._placed(update.indexer_topk, layers)
        elif hasattr(sample, "rollout_indexer_topk"):
            sample.rollout_indexer_topk = None
        plain: Any = meta
        sample.update_from_meta_info(self._args, plain.copy())

    def _placed(self, found: ReplayArray, layers: int) -> Any:
        """Shape ``(len(tokens) - 1, layers, top_k)``, int32; the width is what the number of elements says."""
        import numpy as np

        total = len(self._sample.tokens)
        rows = max(total - 1, 0)
        top_k = max(len(found) // (rows * layers), 1) if rows else 1
        return np.asarray(found.reshape(layers, top_k, total_tokens=total).array)
