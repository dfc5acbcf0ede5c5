"""What one streamed call has given so far, as frameworks keep it: lists of scored tokens, and the text.

Shared by the adapters that write onto a framework's own sample.  Knows updates and nothing of samples or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ssefold import Update

from ..rollout.text import RolloutText

StreamMode = Literal["auto", "cumulative", "incremental"]


class CallTokens:
    """Tokens, logprobs and text of one call, as its updates are taken.

    Only tokens with a logprob count: one without cannot be trained on.  Where a server sends rows late, it sends them
    for all tokens at once, and the update that brings them replaces.

    :param known: number of tokens before the first update.
    """

    def __init__(
        self, mode: StreamMode, tokens: Iterable[int] = (), log_probs: Iterable[float | None] = (), known: int = 0
    ) -> None:
        self.tokens: list[int] = list(tokens)
        self.log_probs: list[float | None] = list(log_probs)
        self._mode: StreamMode = mode
        self._known = known
        self._text = RolloutText()
        self._has_text = False
        self._must_decode = False

    def take(self, update: Update) -> tuple[list[int], list[float | None]]:
        """Take an update; returns the caller's own lists of what it brings: what is new, or with ``replace`` all."""
        first = max(self._known - update.start, 0)
        log_probs = list(update.logprobs[first:])
        tokens = list(update.token_ids[first : len(update.logprobs)])
        self._known += len(tokens)
        self.tokens += tokens
        self.log_probs += log_probs
        if update.text is not None:
            self._text.put(update.text_start, update.text)
            self._has_text = True
        elif self._mode == "incremental" or tokens:
            self._must_decode = True
        return (list(self.tokens), list(self.log_probs)) if update.replace else (tokens, log_probs)

    def text(self, decode: Callable[[list[int]], str]) -> str:
        """The call's text: the server's, or where it sent none, ``decode`` of all tokens, called once."""
        if self._must_decode or (self._mode == "cumulative" and not self._has_text):
            return decode(list(self.tokens))
        return self._text.value()
