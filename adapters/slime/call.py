"""Updates of a response as slime's updates, and failures of a response in slime's words.

Knows nothing of requests and samples.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ssefold import GenerateDecoder, IncompleteStreamError, PayloadError, ProtocolError, StreamError, Update
from ssefold.views import thaw

from .._call import CallTokens, StreamMode
from .stream import SGLangStreamUpdate, check_length_given

_log = logging.getLogger("ssefold.adapters.slime")

_NO_FINISH = "SGLang streaming response ended without a terminal finish_reason."


class SlimeCall:
    """One response.

    :ivar decoder: to be fed.
    :ivar tokens: what was taken so far.
    :ivar last_meta: ``meta_info`` of the last update that a sample takes something from.
    """

    def __init__(self, mode: StreamMode, *, fast_path: bool) -> None:
        self.tokens: CallTokens = CallTokens(mode)
        self.last_meta: dict[str, Any] = {}
        self.decoder: GenerateDecoder = _Decoder(mode=mode, on_bad_json="skip", fast_path=fast_path)
        self._mode: StreamMode = mode
        self._has_rows = False

    def take(self, update: Update) -> SGLangStreamUpdate:
        """The update as slime has it.

        :raises ProtocolError: it lacks the counter that slime needs.
        """
        # Before the last chunk a sample needs only the arrays, and a meta_info that is not read is not parsed.
        if self.last_meta and update.finish_reason is None and update.top_p is None and update.routed_experts is None:
            meta: dict[str, Any] = {}
        else:
            self.last_meta = meta = thaw(update.meta_info)
            check_length_given(meta)
        tokens, log_probs = self.tokens.take(update)
        self._has_rows = self._has_rows or update.top_p is not None
        # What ends a call describes all of it: newer samples take weight versions only beside tokens.  Top-p rows that
        # came chunk by chunk are on the sample and nowhere else.
        is_bare_end = update.finish_reason is not None and not tokens and not self._has_rows
        whole = update.replace or (is_bare_end and bool(self.tokens.tokens))
        if whole:
            tokens, log_probs = list(self.tokens.tokens), list(self.tokens.log_probs)
        return SGLangStreamUpdate(whole, tokens, log_probs, meta)

    def in_slimes_words(self, error: StreamError) -> StreamError:
        """The same error, with the fragments of a message that callers of slime's look for."""
        if isinstance(error, IncompleteStreamError):
            return IncompleteStreamError(f"{_NO_FINISH} More exactly: {error}", partial=error.partial)
        text = str(error)
        if not isinstance(error, ProtocolError) or text.startswith("SGLang"):
            return error
        if not ("output_token_logprobs" in text or "mode=" in text):
            return error
        return ProtocolError(
            f"SGLang {self._mode} streaming output has inconsistent output_token_logprobs_length: {error}",
            partial=error.partial,
        )


class _Decoder(GenerateDecoder):
    """Logs which payloads it skips, and refuses the one kind that slime accepts and that cannot be trained on."""

    def _skip(self, data: bytes) -> None:
        super()._skip(data)
        if b"NaN" in data or b"Infinity" in data:
            _refuse_numbers(data)
        _log.warning("sglang_streaming: skipping non-JSON chunk: %r", data[:480].decode("utf-8", "replace")[:120])


def _refuse_numbers(data: bytes) -> None:
    found: list[str] = []
    try:
        json.loads(data, parse_constant=found.append)
    except ValueError:
        return
    if found:
        raise PayloadError(
            f"{found[0]} in the chunk {data[:80].decode('utf-8', 'replace')!r}...: it is no JSON, and a logprob of that"
            " value cannot be trained on. SGLang writes null: look at what is between it and here, and at the sampler's"
            " numerics (weights that were loaded last)"
        )
