"""Logprob rows: ``[logprob | null, token id, text | null]``, one per output token.

Reads rows out of a chunk into arrays, and compares rows with what is already known.  Knows the form of one row
(SGLang ``managers/tokenizer_manager.py::detokenize_logprob_tokens``; two-element rows with float ids come from the
gRPC gateway) and nothing of lanes, counters or chunks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import isfinite, nan
from operator import itemgetter
from typing import Any, NamedTuple

from ..errors import PayloadError, ProtocolError

_FIELD = "meta_info.output_token_logprobs"
_MAX_ID = 2**63
_FLOAT, _INT = {float}, {int}
_logprob_of = itemgetter(0)
_id_of = itemgetter(1)


class Rows(NamedTuple):
    """Parsed rows.  ``logprobs`` holds NaN where the server sent null; ``texts`` is None when no row had a text."""

    ids: array[int]
    logprobs: array[float]
    texts: list[str | None] | None
    width: int


NO_ROWS = Rows(array("q"), array("d"), None, 3)


def parse_rows(rows: Sequence[Any], first: int) -> Rows:
    """Read ``rows``; ``first`` is the position of ``rows[0]`` in the output, for messages.

    :raises PayloadError: a row is not a list of two or three elements of the right types.
    """
    plain = plain_columns(rows)
    if plain is not None:
        return Rows(array("q", plain[0]), array("d", plain[1]), None, 3)
    ids = array("q")
    logprobs = array("d")
    texts: list[str | None] | None = None
    width = 3
    for at, row in enumerate(rows):
        if not isinstance(row, (list, tuple)) or not 2 <= len(row) <= 3:
            raise PayloadError(f"{_FIELD}[{first + at}] must be [logprob, token id, text], found {_shown(row)}")
        logprob, token_id = row[0], row[1]
        if type(logprob) is float and isfinite(logprob):
            logprobs.append(logprob)
        else:
            logprobs.append(_other_logprob(logprob, first + at))
        ids.append(token_id_of(token_id, f"{_FIELD}[{first + at}][1]"))
        width = len(row)
        text = row[2] if width == 3 else None
        if text is not None:
            if type(text) is not str:
                raise PayloadError(f"{_FIELD}[{first + at}][2] must be text or null, found {_shown(text)}")
            if texts is None:
                texts = [*[None] * at]
        if texts is not None:
            texts.append(text)
    return Rows(ids, logprobs, texts, width)


def plain_columns(rows: Sequence[Any]) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    """Ids and logprobs of rows that are all a finite float, an id and null, as nearly all are; None if any is not.

    Without a step in Python per row.
    """
    try:
        if len(rows) == 1:  # a third of the steps
            ((logprob, token_id, text),) = rows
            is_plain = type(logprob) is float and type(token_id) is int and text is None
            if is_plain and 0 <= token_id < _MAX_ID and isfinite(logprob):
                return (token_id,), (logprob,)
            return None
        logprobs, ids, texts = zip(*rows, strict=True)
    except (TypeError, ValueError):
        return None
    if (
        texts.count(None) == len(texts)
        and set(map(type, logprobs)) == _FLOAT
        and set(map(type, ids)) == _INT
        and min(ids) >= 0
        and max(ids) < _MAX_ID
        and isfinite(sum(logprobs))
    ):
        return ids, logprobs
    return None  # something odd, which the caller names


def token_id_of(value: Any, field: str) -> int:
    """A token id: an integer, or (gRPC gateway) a float that is one.

    :raises PayloadError: anything else, or a negative one, which no vocabulary has.
    """
    if type(value) is int:
        if 0 <= value < _MAX_ID:
            return value
    elif type(value) is float and value.is_integer() and 0 <= value < 2**53:
        return int(value)
    raise PayloadError(f"{field} must be a token id (a whole number from 0), found {_shown(value)}")


def check_same(rows: Sequence[Any], ids: array[int], logprobs: array[float]) -> None:
    """The rows must say what ``ids`` and ``logprobs``, of the same length, already hold, to the last bit.

    :raises ProtocolError: one differs; the message names the first that does.
    """
    if same(rows, ids, logprobs):
        return
    parsed = parse_rows(rows, 0)
    for at, (token_id, logprob) in enumerate(zip(ids, logprobs, strict=True)):
        if parsed.ids[at] != token_id or parsed.logprobs[at : at + 1].tobytes() != logprobs[at : at + 1].tobytes():
            raise ProtocolError(
                f"{_FIELD}[{at}] was logprob {_null(logprob)}, id {token_id} and is now logprob "
                f"{_null(parsed.logprobs[at])}, id {parsed.ids[at]}: a cumulative chunk must repeat the rows already "
                "sent. Was the request restarted within the stream (a retry in a gateway, or input_embeds retraction)?"
            )


def same(rows: Sequence[Any], ids: array[int], logprobs: array[float]) -> bool:
    """True if well-formed ``rows`` hold exactly these ids and logprobs; False also for anything this cannot judge."""
    try:
        if array("q", map(_id_of, rows)) != ids:
            return False
        values = list(map(_logprob_of, rows))
        if None in values:
            values = [nan if value is None else value for value in values]
        return array("d", values).tobytes() == logprobs.tobytes()
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        return False  # odd rows; parse_rows says what is odd about them


def _other_logprob(value: Any, at: int) -> float:
    if value is None:
        return nan
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    raise PayloadError(f"{_FIELD}[{at}][0] must be a finite number or null, found {_shown(value)}")


def _null(value: float) -> str:
    return "null" if value != value else repr(value)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of thousands of digits, very deep lists
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
