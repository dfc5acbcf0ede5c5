"""Where the entries of a list belong: the rules that tell a delta from a snapshot.

SGLang has sent each part of a chunk (text, ids, logprob rows, top logprobs, ...) as a delta in some versions and as a
snapshot in others, so each *lane* is judged on its own.  Counters (``completion_tokens``,
``output_token_logprobs_length``) are totals in every version and mode: a list that is as long as the counter is a
snapshot, one as long as the counter's growth is a delta, and anything else must be one of the few known oddities or
is refused.  The functions here only compare lengths; they know nothing of what the entries are.

Facts: SGLang ``managers/tokenizer_manager.py``: ``_handle_batch_output``, ``_handle_abort_req``,
``_coalesce_streaming_chunks``, ``_slice_streaming_output_meta_info``.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ..errors import ProtocolError

Lane = Literal["cumulative", "incremental"]
Mode = Literal["auto", "cumulative", "incremental"]

CUMULATIVE: Final = "cumulative"
INCREMENTAL: Final = "incremental"


class Place(NamedTuple):
    """The verdict over one list.

    :ivar lane: what the list proves about its lane, or None if it fits both.
    :ivar new: the entries from here on are new; the ``new - glued`` before them were known.
    :ivar glued: this many entries in front are a second copy of pending deltas and belong nowhere.
    """

    lane: Lane | None
    new: int
    glued: int = 0


def place_counted(
    field: str, length: int, have: int, total: int, *, terminal: bool, queue_abort: bool, hint: str
) -> Place:
    """Place a list of ``length`` entries when ``have`` are known and the counter says ``total``.

    ``terminal``: chunks that end an output are consistent copies; others may show lists that have run ahead of their
    counters (batches in cumulative mode serialise live lists).  ``queue_abort``: a snapshot that the server may have
    joined to pending deltas for a slow reader.  An empty list proves nothing of its lane.

    :raises ProtocolError: the lengths fit neither mode.
    """
    if length == total:
        if have == 0:
            return Place(None, 0)
        if have <= length:
            return Place(CUMULATIVE, have)
    elif have + length == total:
        return Place(INCREMENTAL if length else None, 0)
    elif length > total and have <= length:
        if not terminal:
            return Place(CUMULATIVE, have)
        if queue_abort and length - total == total - have:
            # Pending deltas, and after them the whole list of the abort.
            return Place(None, total, length - total)
    raise misfit(field, length, have, total, hint)


def place_uncounted(field: str, length: int, have: int, lane: Lane | None, prefix: bool | None, hint: str) -> Place:
    """Place a list for which no counter came: by the lane known so far, else by the prefix test.

    ``prefix``: whether the first ``have`` entries equal the known ones; None if the list is shorter than that.

    :raises ProtocolError: nothing tells, and a guess could double or drop tokens.
    """
    if have == 0:
        return Place(None, 0)
    if lane == INCREMENTAL or (lane is None and length == 0):
        return Place(lane, 0)
    if lane == CUMULATIVE:
        if length >= have:
            return Place(CUMULATIVE, have)
        raise ProtocolError(f"{field} is cumulative but has shrunk from {have} to {length} entries. {hint}")
    if prefix is None or not prefix:
        return Place(INCREMENTAL, 0)
    if length > have:
        return Place(CUMULATIVE, have)
    raise ProtocolError(
        f"{field} repeats the {have} entries known, and no counter (meta_info.completion_tokens or "
        "output_token_logprobs_length) tells whether they are the same tokens or new ones: set mode='cumulative' or "
        "mode='incremental' to what the server was started with"
    )


def keep_lane(name: str, known: Lane | None, found: Lane | None) -> Lane | None:
    """The lane that is known now.

    :raises ProtocolError: it was another one.
    """
    if known is None or found is None or known == found:
        return known or found
    raise ProtocolError(
        f"the {name} lane was {known} and is now {found}: a server keeps one mode for a whole answer. Was the request "
        "moved to a server with other flags within the stream?"
    )


def not_together(delta: str, snapshot: str) -> ProtocolError:
    """The error for two fields of which no version sends one as a delta beside the other as a snapshot.

    Lanes became deltas in this order: ids (0.5.1 to 0.5.9), ids and text (0.5.10), ids, text and rows (since 0.5.11).
    """
    return ProtocolError(
        f"{delta} is incremental beside {snapshot}, which is cumulative: no server version sends both. Fields of two "
        "answers were mixed, or a gateway joins or cuts one of them; look at the gateways between"
    )


def misfit(field: str, length: int, have: int, total: int, hint: str) -> ProtocolError:
    """The error for a list whose length fits neither mode."""
    return ProtocolError(
        f"{field} has {length} entries, {have} were known and the counter says {total} in all: that is neither "
        f"cumulative (it would have {total}) nor incremental (it would have {total - have}). {hint}"
    )
