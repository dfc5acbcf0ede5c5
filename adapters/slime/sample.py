"""One call's tokens onto slime's ``Sample``: from the state before the call, and back to it when a chunk says so.

Everything goes through ``Sample.append_response_tokens``, which does slime's own checks.  What stands here is what that
method cannot know: which state a call started from, and that top-p rows come with the terminal chunk only, so that a
sample which has rows already is without them while the next call streams.  Source: slime ``utils/types.py``.  Knows
nothing of streams and requests.
"""

from __future__ import annotations

import logging
from typing import Any

from ssefold import FinishReason, PayloadError, ReplayError, ServerError

from .stream import SGLangStreamUpdate

_log = logging.getLogger("ssefold.adapters.slime")

_TOP_P_KEYS = frozenset({"top_p_token_ids", "top_p_kept_token_ids", "top_p_token_offsets", "top_p_kept_token_offsets"})
_INT32_KEYS = _TOP_P_KEYS | {"routed_experts", "indexer_topk"}


class SampleCall:
    """A sample during one call.

    :param args: slime's arguments, handed through.
    :param sample: changed in place.
    """

    def __init__(self, args: Any, sample: Any) -> None:
        self._args = args
        self._sample = sample
        self._tokens: list[int] = list(sample.tokens)
        self.response: str = sample.response or ""
        self._response_length: int = sample.response_length
        self._log_probs = None if sample.rollout_log_probs is None else list(sample.rollout_log_probs)
        self._loss_mask = None if sample.loss_mask is None else list(sample.loss_mask)
        self._top_p_token_ids = sample.rollout_top_p_token_ids
        self._top_p_token_offsets = sample.rollout_top_p_token_offsets
        self._routed_experts = sample.rollout_routed_experts
        # The sample's rows were taken off it, as tokens without rows followed.
        self._rows_off = False

    def apply(self, update: SGLangStreamUpdate) -> None:
        """Append what an update brings.

        :raises ValueError: the sample refuses it, or it cannot be trained on.
        """
        reason = update.meta_info.get("finish_reason")
        finish = FinishReason.parse(reason) if reason else None
        if finish is not None and finish.type == "stop" and finish.is_failure:
            raise ServerError(
                f"the sampler drew an id outside the vocabulary (finish_reason.matched {finish.matched!r}): logits were"
                " NaN, and the output is no sample. Look at the weights that were loaded last"
            )
        sample = self._sample
        if update.replace_call_state:
            self._go_back()
        _check_log_probs(update)
        self._place_rows(update)
        sample.append_response_tokens(
            self._args,
            tokens=update.tokens,
            log_probs=update.log_probs,
            trainable=True,
            meta_info=_decodable(update.meta_info),
            text=None,
            update_terminal_info=bool(reason),
        )

    def check_rows(self) -> None:
        """The call has finished.

        :raises ReplayError: it brought no top-p rows although the tokens before it have some.
        """
        if self._rows_off:
            raise ReplayError(
                f"the first {self._response_length} response tokens have top-p rows and the tokens of this call have"
                " none: the server sent no top_p_token_ids with its terminal chunk. Is it slime's SGLang image, and did"
                " a gateway drop sampling_params.custom_params?"
            )

    def warn_of_lost_rows(self) -> None:
        """The call was cut."""
        if self._rows_off:
            _log.warning(
                "top-p rows of %d response tokens were dropped: the next call was cut before its own came."
                " Server abort instead of request abort keeps them (replay data comes with the terminal chunk)",
                self._response_length,
            )

    def _go_back(self) -> None:
        sample = self._sample
        sample.tokens = list(self._tokens)
        sample.response = self.response
        sample.response_length = self._response_length
        sample.rollout_log_probs = None if self._log_probs is None else list(self._log_probs)
        sample.loss_mask = None if self._loss_mask is None else list(self._loss_mask)
        sample.rollout_top_p_token_ids = self._top_p_token_ids
        sample.rollout_top_p_token_offsets = self._top_p_token_offsets
        sample.rollout_routed_experts = self._routed_experts
        self._rows_off = False

    def _place_rows(self, update: SGLangStreamUpdate) -> None:
        """Bring the rows that the sample has into line with those of the tokens that are about to be appended."""
        sample = self._sample
        if not update.tokens:
            return
        given = any(update.meta_info[key] is not None for key in _TOP_P_KEYS.intersection(update.meta_info))
        has_rows = sample.rollout_top_p_token_offsets is not None
        if given and not has_rows and sample.response_length:
            length = sample.response_length
            mask = [1] * length if sample.loss_mask is None else sample.loss_mask
            if any(mask):
                raise ReplayError(
                    f"top-p rows came, but {sum(map(bool, mask))} of the {length} response tokens before them are"
                    " trained on (loss_mask 1) and have none: their call was cut before its rows came. Use server abort"
                    " instead of request abort, or --mask-offpolicy-in-partial-rollout"
                )
            sample.rollout_top_p_token_ids = []
            sample.rollout_top_p_token_offsets = [0] * (length + 1)
        elif has_rows and not given:
            sample.rollout_top_p_token_ids = sample.rollout_top_p_token_offsets = None
            self._rows_off = True


def _check_log_probs(update: SGLangStreamUpdate) -> None:
    if None in update.log_probs:
        at = update.log_probs.index(None)
        raise PayloadError(
            f"the logprob of token {update.tokens[at]} (number {at} of {len(update.tokens)}) is null, which is how"
            " SGLang writes NaN and infinity: it cannot be trained on. Look at the sampler's numerics (temperature,"
            " top_p, weights that were loaded last)"
        )


def _decodable(meta_info: dict[str, Any]) -> dict[str, Any]:
    """``meta_info`` as slime can decode it: an array without rows is ``""`` on the wire, which its decoder refuses."""
    empty = [key for key in _INT32_KEYS.intersection(meta_info) if meta_info[key] == ""]
    return {**meta_info, **{key: [] for key in empty}} if empty else meta_info
