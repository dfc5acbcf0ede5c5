"""A response body to slime's updates, and its failures to slime's words.

Nothing is read ahead, and of several events that came in one read each is handed out by itself, so that the caller may
stop behind any of them.  Knows nothing of requests and samples.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ssefold import FinishReason, GenerateDecoder, IncompleteStreamError, ProtocolError, StreamError, Update
from ssefold.update import meta_of
from ssefold.views import thaw

from .._call.body import body_of
from .._call.tokens import CallTokens, StreamMode
from .stream import SGLangStreamUpdate, check_length_given

_log = logging.getLogger("ssefold.adapters.slime")

_NO_FINISH = "SGLang streaming response ended without a terminal finish_reason."


class SlimeStream:
    """One response.

    :ivar tokens: what was taken so far.
    :ivar last_meta: ``meta_info`` of the last update.
    :ivar finish_reason: set by the terminal update.
    """

    def __init__(self, mode: StreamMode) -> None:
        self.tokens: CallTokens = CallTokens(mode)
        self.last_meta: dict[str, Any] = {}
        self.finish_reason: FinishReason | None = None
        self._mode: StreamMode = mode
        self._decoder = _Decoder(mode=mode, on_bad_json="skip")

    async def updates(self, response: Any) -> AsyncGenerator[SGLangStreamUpdate, None]:
        """Updates up to the end of the body.

        :raises StreamError: what the body says does not fit, or the server reports an error.
        """
        async with aclosing(body_of(response)) as body:
            async for data in body:
                try:
                    for update in self._decoder.feed(data):
                        yield self._take(update)
                    if self._decoder.error is not None:
                        raise self._decoder.error
                except ProtocolError as error:
                    raise self._in_slimes_words(error) from error

    def incomplete(self) -> StreamError:
        """Why the body ended without a ``finish_reason``, once it has."""
        try:
            self._decoder.close()
        except IncompleteStreamError as error:
            return IncompleteStreamError(f"{_NO_FINISH} More exactly: {error}", partial=error.partial)
        except StreamError as error:
            return error
        return IncompleteStreamError(_NO_FINISH)

    def _take(self, update: Update) -> SGLangStreamUpdate:
        if update.index:
            raise ProtocolError(f"index {update.index} came in the answer to a request for one output")
        # A dict of its own, as slime's are; what is in it belongs to nobody else either, unless the chunk is plain.
        plain = update.finish_reason is None and update.top_p is None and update.routed_experts is None
        meta = dict(meta_of(update)) if plain else thaw(meta_of(update))
        check_length_given(meta)
        self.last_meta, self.finish_reason = meta, update.finish_reason
        tokens, log_probs = self.tokens.take(update)
        return SGLangStreamUpdate(update.replace, tokens, log_probs, meta)

    def _in_slimes_words(self, error: ProtocolError) -> ProtocolError:
        text = str(error)
        if text.startswith("SGLang") or not ("output_token_logprobs" in text or "mode=" in text):
            return error
        return ProtocolError(
            f"SGLang {self._mode} streaming output has inconsistent output_token_logprobs_length: {error}",
            partial=error.partial,
        )


class _Decoder(GenerateDecoder):
    """Says which payloads it passes over."""

    def _skip(self, data: bytes) -> None:
        super()._skip(data)
        _log.warning("sglang_streaming: skipping non-JSON chunk: %r", data[:480].decode("utf-8", "replace")[:120])
