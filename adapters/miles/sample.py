"""One call's tokens onto miles' ``Sample``, from the state before the call.

While the response streams, its tokens are on the sample as they come.  At its end the sample goes back to the state
before the call, and miles' own ``update_sample_from_response`` gets the whole response, as it would have come without
streaming: replay arrays, candidates, sampling masks, weight versions and checks are miles' own, in its own version.
Source: miles ``rollout/generate_utils/generate_endpoint_utils.py`` and ``utils/types.py``.  Knows nothing of requests.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ssefold import Accumulator, PayloadError, ServerError, StreamError, Update

from .._call import CallTokens

#: What changes while the response streams.
_STREAMED = ("tokens", "response", "response_length", "rollout_log_probs", "loss_mask")


class MilesCall:
    """A sample during one call.

    :param sample: changed in place; its lists are replaced by copies, so that the caller's lists do not grow.
    :param own_update: miles' ``update_sample_from_response``.
    :param decode: token ids to text, for servers that send none.

    :ivar ended: miles has taken the whole response.
    """

    def __init__(
        self,
        args: Any,
        sample: Any,
        payload: dict[str, Any],
        own_update: Callable[..., Awaitable[None]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        if sample.rollout_log_probs is None and sample.response_length:
            raise ValueError(
                f"the sample has {sample.response_length} response tokens and no rollout_log_probs: tokens that are"
                " appended now could not be aligned"
            )
        self.ended: bool = False
        self._args = args
        self._sample = sample
        self._payload = payload
        self._own_update = own_update
        self._decode = decode
        self._before = self._state()
        self._put(self._before)
        self._tokens = CallTokens("auto")
        # What came is no response that miles could take: refused here, or by miles.
        self._refused = False
        # Weight versions from the chunks, in the form of SGLang's ``weight_versions``.
        self._versions: list[dict[str, Any]] = []

    @property
    def received(self) -> int:
        """Number of tokens of this call."""
        return len(self._tokens.tokens)

    def apply(self, update: Update) -> None:
        """Append what an update brings.

        :raises PayloadError: the output cannot be trained on.
        :raises ServerError: the sampler broke down; or the server refused the request, which without streaming is an
            answer with that HTTP status.
        """
        try:
            self._check(update)
        except StreamError:
            self._refused = True
            raise
        tokens, log_probs = self._tokens.take(update)
        sample = self._sample
        if update.replace:
            self._put(self._before)
        if tokens:
            if sample.rollout_log_probs is None:
                sample.rollout_log_probs = []
            sample.tokens += tokens
            sample.rollout_log_probs += log_probs
            sample.response_length += len(tokens)
            if sample.loss_mask is not None:
                sample.loss_mask += [1] * len(tokens)
        self._note_version(update.meta_info.get("weight_version"))

    async def end(self, output: Accumulator) -> None:
        """Hand the whole response to miles.

        :raises Exception: what miles raises when it refuses the response; tokens and text stay on the sample.
        """
        await self._hand_over(output.native_response(self._decode))
        self.ended = True

    async def cut(self, output: Accumulator | None) -> None:
        """The same for a call that has ended without its terminal chunk: as an abort, of what has arrived.

        Arrays that come with a terminal chunk only are lost, and so are those of an earlier call.
        """
        if self._refused:
            self._put_text()
        elif output is None or not self.received:
            self._put(self._before)
        else:
            response = output.native_response(self._decode)
            response["meta_info"]["finish_reason"] = {"type": "abort", "message": "the response was cut"}
            if len(self._versions) > 1:
                response["meta_info"]["weight_versions"] = self._versions
            await self._hand_over(response)

    async def _hand_over(self, response: dict[str, Any]) -> None:
        meta = response["meta_info"]
        if isinstance(meta["finish_reason"], str):
            meta["finish_reason"] = {"type": meta["finish_reason"]}
        response.setdefault("text", "")
        streamed = self._state()
        self._put(self._before)
        mask = self._sample.loss_mask is not None
        try:
            await self._own_update(
                self._args, self._sample, payload=self._payload, output=response, update_loss_mask=mask
            )
        except BaseException:
            self._refused = True
            self._put(streamed)
            self._put_text()
            raise

    def _check(self, update: Update) -> None:
        if None in update.logprobs:
            raise PayloadError(
                f"the logprob of token {update.token_ids[update.logprobs.index(None)]} is null, which is how SGLang"
                " writes NaN and infinity: it cannot be trained on. Look at the sampler's numerics"
            )
        finish = update.finish_reason
        if finish is None or not finish.is_failure:
            return
        if finish.type == "stop":
            raise ServerError(
                f"the sampler drew an id outside the vocabulary (finish_reason.matched {finish.matched!r}): logits were"
                " NaN, and the output is no sample. Look at the weights that were loaded last"
            )
        if not self.received and not update.token_ids:
            message = finish.message or "the server refused the request"
            raise ServerError(
                f"the server refused the request (status {finish.status_code}): {message}",
                message=message,
                code=finish.status_code,
                type=finish.err_type,
            )

    def _note_version(self, version: Any) -> None:
        if version is None or not self.received:
            return
        if not self._versions or self._versions[-1]["version"] != version:
            start = self._versions[-1]["end"] if self._versions else 0
            self._versions.append({"version": version, "start": start, "end": start})
        self._versions[-1]["end"] = self.received

    def _put_text(self) -> None:
        self._sample.response = self._before["response"] + self._tokens.text(self._decode)

    def _state(self) -> dict[str, Any]:
        return {name: copy.copy(getattr(self._sample, name)) for name in _STREAMED}

    def _put(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self._sample, name, copy.copy(value))
