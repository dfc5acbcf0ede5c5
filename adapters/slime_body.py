"""A response body to slime's updates: bytes where the response offers them, lines where it offers nothing else.

Nothing is read ahead, and of several events that came in one read each is handed out by itself, so that the caller may
stop behind any of them.  Knows what a response can be asked for; nothing of requests and samples.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from ssefold import FinishReason, GenerateDecoder, IncompleteStreamError, ProtocolError, StreamError, Update

from .slime_stream import CallTokens, OutputMode, SGLangStreamUpdate, check_length_given

_log = logging.getLogger("ssefold.adapters.slime")

_NO_FINISH = "SGLang streaming response ended without a terminal finish_reason."


class SlimeStream:
    """One response.

    :ivar tokens: what was taken so far.
    :ivar last_meta: ``meta_info`` of the last update.
    :ivar finish_reason: set by the terminal update.
    """

    def __init__(self, mode: OutputMode) -> None:
        self.tokens = CallTokens(mode)
        self.last_meta: dict[str, Any] = {}
        self.finish_reason: FinishReason | None = None
        self._mode: OutputMode = mode
        self._decoder = _Decoder(mode=mode, on_bad_json="skip")

    async def updates(self, response: Any) -> AsyncGenerator[SGLangStreamUpdate, None]:
        """Updates up to the end of the body.

        :raises StreamError: what the body says does not fit, or the server reports an error.
        """
        async with aclosing(_body(response)) as body:
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
        meta = cast("Any", update.meta_info).copy()
        check_length_given(meta)
        self.last_meta, self.finish_reason = meta, update.finish_reason
        return self.tokens.take(update, meta)

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


async def _body(response: Any) -> AsyncGenerator[bytes, None]:
    """The body's bytes; of lines, which have lost their ends, each data line is an event."""
    read_bytes = getattr(response, "aiter_bytes", None) or getattr(response, "aiter_raw", None)
    items: Any = response.aiter_lines() if read_bytes is None else read_bytes()
    try:
        async for item in items:
            if read_bytes is not None:
                yield item
            elif item.startswith("data:"):
                yield f"data:{item[5:].strip()}\n\n".encode("utf-8", "surrogatepass")
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
