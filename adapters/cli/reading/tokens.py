"""The tokens of one output, each with what is known about it: id, logprob, text, and the event that brought it.

A chunk's text belongs to its tokens together; it stands with the last of them, unless the logprob rows have texts of
their own (``return_text_in_logprobs``).  Knows readings, not how they are shown.
"""

from __future__ import annotations

from typing import NamedTuple

from .fold import Reading


class Token(NamedTuple):
    """One token.

    :ivar text: its own, or its chunk's if it is the chunk's last token; empty otherwise.
    :ivar chunk_logprob: the mean over the chunk that brought it: what its chunk's text is coloured by.
    :ivar event: number of the event; :ivar offset: the event's place in the body.
    """

    position: int
    token_id: int
    logprob: float | None
    text: str
    chunk_logprob: float | None
    event: int
    offset: int


def tokens_of(reading: Reading, index: int) -> list[Token]:
    """The tokens of one output, in order."""
    output = reading.outputs[index]
    ids, logprobs = output.token_ids, output.logprobs
    own_texts = output.state.row_texts
    tokens: list[Token] = []
    text_length = 0
    for number, step in enumerate(reading.steps):
        for update in step.updates:
            if update.index != index:
                continue
            piece = "" if update.text is None else update.text[max(text_length - update.text_start, 0) :]
            if update.text is not None:
                text_length = update.text_start + len(update.text)
            first, end = len(tokens), update.start + len(update.token_ids)
            known = [logprob for logprob in logprobs[first:end] if logprob is not None]
            mean = sum(known) / len(known) if known else None
            for at in range(first, end):
                own = own_texts[at] if own_texts is not None and at < len(own_texts) else None
                text = own if own is not None else piece if at == end - 1 else ""
                tokens.append(
                    Token(at, ids[at], logprobs[at] if at < len(logprobs) else None, text, mean, number, step.offset)
                )
            if first >= end and piece and tokens:
                # Text that came later than its token: a character was held back.
                tokens[-1] = tokens[-1]._replace(text=tokens[-1].text + piece)
    return tokens
