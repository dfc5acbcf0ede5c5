"""One token more and nothing else: what almost every cut payload of a cumulative stream says, read without parsing it.

``suffix.py`` leaves of a payload some fixed pieces and what is new between them.  If the fixed pieces are those of an
earlier payload, which was parsed, but for the count of tokens in them, only three values are to be read: the new text,
the id and the logprob.  The whole is then valid JSON of that payload's form, as the three values go through the parser.
Knows bytes; what may be done with the values is the business of ``steady.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from ..fold.payload import json_backend
from .spans import find_spans

_QUOTE = 34
_COUNTS: tuple[tuple[str, ...], ...] = (
    ("meta_info", "output_token_logprobs_length"),
    ("meta_info", "completion_tokens"),
)


class Step(NamedTuple):
    """A form of payloads.

    :ivar fixed: of each fixed piece the parts around the counts in it.
    :ivar text: where among all pieces the new text is; ``ids`` and ``rows`` likewise.
    :ivar steady: the form of meta_info.
    """

    fixed: list[list[bytes]]
    text: int
    ids: int
    rows: int
    steady: list[object]


def learn_step(pieces: list[bytes], places: tuple[int, int, int], total: int, steady: list[object]) -> Step | None:
    """The form of a payload, in pieces, that was folded and brought one token, the ``total``-th.

    :param pieces: fixed ones and new ones in turn, a fixed one first and last.
    :param places: of the new text, ids and rows among the pieces.
    """
    spans = find_spans(b"".join(pieces))
    count = b"%d" % total
    fixed: list[list[bytes]] = []
    begin = found = 0
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            parts: list[bytes] = []
            done = 0
            inside = [spans[path] for path in _COUNTS if path in spans and spans[path].start >= begin]
            for span in sorted(inside, key=lambda span: span.start):
                start, end = span.start - begin, span.end - begin
                if end <= len(piece) and piece[start:end] == count:
                    parts.append(piece[done:start])
                    done = end
                    found += 1
            fixed.append([*parts, piece[done:]])
        begin += len(piece)
    return Step(fixed, *places, steady) if found == len(_COUNTS) else None


def read_step(step: Step, pieces: list[bytes], total: int) -> tuple[str, int, float] | None:
    """Text, id and logprob, if the pieces are of this form and their count is ``total``."""
    count = b"%d" % total
    if pieces[::2] != [count.join(parts) for parts in step.fixed]:
        return None
    text_raw, id_raw, row = pieces[step.text], pieces[step.ids], pieces[step.rows]
    logprob_raw = row[1 : row.find(b",")]
    if not id_raw.isdigit() or row != b"[%s,%s,null]" % (logprob_raw, id_raw):
        return None
    try:
        text, token_id, logprob = json_backend()(b'["%s",%s,%s]' % (text_raw, id_raw, logprob_raw))
    except ValueError:  # one of them is not what it should be, or they are more than three
        return None
    if type(text) is not str or type(token_id) is not int or type(logprob) is not float:
        return None
    return text, token_id, logprob
