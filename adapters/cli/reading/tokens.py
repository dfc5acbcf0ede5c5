"""The tokens of one output, each with what is known about it: id, logprob, text, and the event that brought it.

An event's text belongs to its tokens together, unless the logprob rows have texts of their own
(``return_text_in_logprobs``).  Knows readings, not how they are shown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ssefold import Update

from .fold import Reading

_ROWS = "output_token_logprobs"


class Token(NamedTuple):
    """One token.

    :ivar text: its own, or that of all ``of`` tokens of its event if it is the last of them; empty otherwise.
    :ivar of: how many tokens have the text together; 1: it is this one's.  :ivar place: which of them it is, from 0.
    :ivar event_logprob: the mean over these tokens: what their text is coloured by.
    :ivar event: number of the event; :ivar offset: the event's place in the body.
    """

    position: int
    token_id: int
    logprob: float | None
    text: str
    of: int
    place: int
    event_logprob: float | None
    event: int
    offset: int


def tokens_of(reading: Reading, index: int) -> list[Token]:
    """The tokens of one output, in order."""
    output = reading.outputs[index]
    ids, logprobs = output.token_ids, output.logprobs
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
            scores = [logprobs[at] if at < len(logprobs) else None for at in range(first, end)]
            known = [logprob for logprob in scores if logprob is not None]
            mean = sum(known) / len(known) if known else None
            own = _own_texts(update, end - first)
            for place, at in enumerate(range(first, end)):
                if own:
                    text, of, place_, colour = own[place], 1, 0, scores[place]
                else:
                    text, of, place_, colour = piece if at == end - 1 else "", end - first, place, mean
                tokens.append(Token(at, ids[at], scores[place], text, of, place_, colour, number, step.offset))
            if first >= end and piece and tokens:
                # Text that came later than its token: a character was held back.
                tokens[-1] = tokens[-1]._replace(text=tokens[-1].text + piece)
    return tokens


def _own_texts(update: Update, new: int) -> list[str]:
    """The texts that the rows of the last ``new`` tokens have; empty unless all have one."""
    rows: Any = update.meta_info.get(_ROWS) or ()
    texts = [row[2] for row in rows[len(rows) - new :] if len(row) > 2] if 0 < new <= len(rows) else []
    return texts if len(texts) == new and all(isinstance(text, str) for text in texts) else []
