"""Ids and logprobs of a chunk: which tokens are new, and do all claims about them agree.

Logprob rows carry ids of their own and outrank ``output_ids``, which several versions cut, prefix or collapse.  With
the truth known from the rows, ``output_ids`` must still be one of the things a server sends for it; without rows, they
are placed by ``completion_tokens``.  Plans only: nothing here changes the state.

Facts: SGLang ``managers/tokenizer_manager.py::_handle_batch_output`` and ``_handle_abort_req``,
``managers/detokenizer_manager.py`` (0.5.1-0.5.4 sent ``decode_ids``, up to five prompt ids in front).
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from ..errors import ProtocolError
from .chunk import Chunk
from .lanes import CUMULATIVE, INCREMENTAL, Lane, Place, keep_lane, misfit, not_together, place_counted, place_uncounted
from .rows import NO_ROWS, Rows, check_same, parse_rows, token_id_of
from .state import OutputState

_EMPTY_IDS: array[int] = array("q")

ROWS = "meta_info.output_token_logprobs"
_MOST_PROMPT_IDS = 5
_MOST_CATCH_UPS = 16
_ROWS_HINT = (
    "Logprob rows were lost or doubled on the way; a server before 0.5.10 with speculative decoding sends surplus rows "
    "(upgrade it or switch that off), and a gateway that merges chunks must not touch meta_info"
)
_IDS_HINT = (
    "Ids were lost or doubled on the way: servers before 0.5.10 drop ids when the reader is slow (ask for "
    "return_logprob, whose rows are complete, or upgrade the server); otherwise look at the gateways between"
)


class TokenStep(NamedTuple):
    """What a chunk does to ids and logprobs.

    :ivar ids: new token ids.
    :ivar rows: new logprob rows; more than ``ids`` when they catch up on tokens that came without.
    :ivar rows_first: index in the chunk's row list of the first new row.
    :ivar glued: the chunk is an abort snapshot after pending deltas; None if it may be.
    :ivar caught_up: rows arrived for tokens that were returned without; the update must contain everything again.
    """

    ids: array[int]
    rows: Rows
    rows_first: int
    rows_lane: Lane | None
    ids_lane: Lane | None
    glued: bool | None
    caught_up: bool


def plan_tokens(state: OutputState, chunk: Chunk, *, queue_abort: bool) -> TokenStep:
    """Place rows and ids.

    :raises ProtocolError: lengths, prefix or ids contradict each other or an earlier chunk.
    :raises PayloadError: a row or an id is malformed.
    """
    have_rows = len(state.logprobs)
    rows = chunk.rows
    if rows is None or (not rows and not have_rows and not chunk.rows_total):
        return _by_ids(state, chunk, queue_abort=queue_abort)
    place = _place_rows(state, chunk, rows, queue_abort=queue_abort)
    first = place.new
    if first > place.glued and place.lane != INCREMENTAL:
        check_same(rows[place.glued : first], state.token_ids[:have_rows], state.logprobs)
    new = parse_rows(rows[first:] if first else rows, have_rows)
    if place.glued:
        check_same(rows[: place.glued], new.ids[: place.glued], new.logprobs[: place.glued])
    behind = len(state.token_ids) - have_rows
    ids = new.ids
    if behind:
        known = state.token_ids[have_rows : have_rows + len(new.ids)]
        if new.ids[:behind] != known:
            raise ProtocolError(
                f"meta_info.output_token_logprobs: the rows from {have_rows} on are for ids "
                f"{new.ids[:behind].tolist()[:8]}, but output_ids gave {known.tolist()[:8]} there. {_ROWS_HINT}"
            )
        ids = new.ids[behind:]
        if first + len(new.ids) < len(state.token_ids) + len(ids) and state.catch_ups >= _MOST_CATCH_UPS:
            # Each update that replaces carries everything again: a few bytes must not bring that without end.
            raise ProtocolError(
                f"meta_info.output_token_logprobs came late for {min(behind, len(new.ids))} tokens, as "
                f"{state.catch_ups} times before, and never whole: no server sends that. {_ROWS_HINT}"
            )
    total = len(state.token_ids) + len(ids)
    if chunk.completion is not None and chunk.completion > total:
        raise ProtocolError(
            f"meta_info.completion_tokens is {chunk.completion}, but meta_info.output_token_logprobs holds {total} "
            f"tokens in all. {_ROWS_HINT}"
        )
    rows_lane = keep_lane("logprobs", state.rows_lane, None if queue_abort else place.lane)
    ids_lane = state.ids_lane
    glued: bool | None = place.glued > 0
    if chunk.ids is not None:
        found, ids_glued = _agree(state, chunk, ids, queue_abort=queue_abort)
        sent = len(chunk.ids)
        if place.lane == INCREMENTAL and sent and sent != len(ids) and not queue_abort:
            # Who sends rows as deltas joins both lists or neither; rows that repeat known ones are none.
            raise _disagree(chunk, parse_ids(chunk.ids), ids)
        ids_lane = keep_lane("output_ids", ids_lane, found)
        glued = glued or ids_glued
    if rows_lane == INCREMENTAL and ids_lane == CUMULATIVE:
        raise not_together(ROWS, "output_ids")
    return TokenStep(ids, new, first, rows_lane, ids_lane, glued, bool(behind and len(new.ids)))


def parse_ids(ids: list[Any]) -> array[int]:
    """Token ids as an array.

    :raises PayloadError: an element is no token id.
    """
    if set(map(type, ids)) <= {int}:
        try:
            parsed = array("q", ids)
        except OverflowError:
            pass  # said below, with the element's place
        else:
            if not parsed or min(parsed) >= 0:
                return parsed
    return array("q", [token_id_of(value, f"output_ids[{at}]") for at, value in enumerate(ids)])


def _place_rows(state: OutputState, chunk: Chunk, rows: list[Any], *, queue_abort: bool) -> Place:
    field = ROWS
    length = len(rows)
    have = len(state.logprobs)
    total = chunk.completion if chunk.rows_total is None else chunk.rows_total
    if total is not None and length > total and chunk.finish is None and "index" not in chunk.top:
        # Only batches serialise lists that have run ahead; here these would be surplus rows of a speculative decoder.
        raise misfit(field, length, have, total, _ROWS_HINT)
    if total is not None:
        place = place_counted(
            field,
            length,
            have,
            total,
            terminal=chunk.finish is not None,
            queue_abort=queue_abort,
            hint=_ROWS_HINT,
        )
    else:
        lane = state.rows_lane or state.ids_lane or (None if state.mode == "auto" else state.mode)
        prefix = None
        if lane is None and length >= have:
            prefix = parse_rows(rows[:have], 0).ids == state.token_ids[:have]
        place = place_uncounted(field, length, have, lane, prefix, _ROWS_HINT)
    if place.lane == INCREMENTAL and state.rows_lane == CUMULATIVE:
        raise misfit(field, length, have, have + len(rows), _ROWS_HINT)
    return place


def _agree(state: OutputState, chunk: Chunk, new: array[int], *, queue_abort: bool) -> tuple[Lane | None, bool | None]:
    """``output_ids`` beside rows: find out what they are for, given the truth.  Returns lane and whether glued."""
    ids = parse_ids(chunk.ids or [])
    have = len(state.token_ids)
    total = have + len(new)
    count = total if chunk.completion is None else chunk.completion
    length = len(ids)

    def truth(start: int, stop: int) -> array[int]:
        if start >= have:
            return new[start - have : stop - have]
        return state.token_ids[start:stop] + new[: max(stop - have, 0)]

    if length == 0:
        return None, False
    is_whole = count <= length <= total and ids == truth(0, length)
    if queue_abort:
        # Asked first, since pending ids and the last one again may also be the last ones of all.
        delivered = have if state.count is None else state.count
        pending = truth(delivered, count)
        if length > 1 and len(pending) == length - 1 and ids == pending + truth(count - 1, count):
            return None, None if is_whole else True
        if is_whole or (length == 1 and ids == truth(count - 1, count)):
            return None, False
        raise _disagree(chunk, ids, truth(max(count - length, 0), total))
    # The first ids are both snapshot and delta, whatever rows have run ahead of them.
    is_first = not have or not state.ids_sent or state.count == 0
    if is_whole:
        return (None if is_first or length == 1 else CUMULATIVE), False
    if length > total and chunk.finish is None and "text" not in chunk.top and ids[:total] == truth(0, total):
        # Batches of 0.4.6 with --skip-tokenizer-init: the list has run ahead of the rows, which bring these ids next.
        return (None if is_first else CUMULATIVE), False
    if length <= count <= total and ids == truth(count - length, count):
        # The last tokens: a delta, or what is left of one after the server dropped chunks, or the last id repeated.
        return INCREMENTAL, False
    if not have and 0 < length - count <= _MOST_PROMPT_IDS and ids[length - count :] == truth(0, count):
        return INCREMENTAL, False
    raise _disagree(chunk, ids, truth(max(count - length, 0), total))


def _disagree(chunk: Chunk, ids: array[int], truth: array[int]) -> ProtocolError:
    return ProtocolError(
        f"output_ids {ids.tolist()[-8:]} and the ids of meta_info.output_token_logprobs {truth.tolist()[-8:]} disagree "
        f"(completion_tokens {chunk.completion}, {len(ids)} ids in this chunk). {_IDS_HINT}"
    )


def _by_ids(state: OutputState, chunk: Chunk, *, queue_abort: bool) -> TokenStep:
    """No rows in this chunk: place ``output_ids`` by ``completion_tokens``."""
    step = TokenStep(_EMPTY_IDS, NO_ROWS, 0, state.rows_lane, state.ids_lane, False, False)
    if chunk.ids is None:
        return step
    ids = parse_ids(chunk.ids)
    have = len(state.token_ids)
    length = len(ids)
    count = chunk.completion
    if queue_abort:
        return _abort_ids(state, step, chunk, ids, count)
    if count is None:
        lane = state.ids_lane or state.rows_lane or (None if state.mode == "auto" else state.mode)
        prefix = ids[:have] == state.token_ids if length >= have else None
        place = place_uncounted("output_ids", length, have, lane, prefix, _IDS_HINT)
    else:
        place = _place_ids(state, chunk, ids, length, count)
    if place.lane == CUMULATIVE and ids[: place.new] != state.token_ids[: place.new]:
        raise _changed(state, ids)
    lane = keep_lane("output_ids", state.ids_lane, place.lane)
    return step._replace(ids=ids[place.new :], ids_lane=lane)


def _place_ids(state: OutputState, chunk: Chunk, ids: array[int], length: int, count: int) -> Place:
    have = len(state.token_ids)
    if length == 1 and have == count and ids[-1:] == state.token_ids[-1:]:
        # The last id once more, nothing new (gRPC gateway's terminal event; or a snapshot of one token).
        return Place(state.ids_lane, length)
    if have and length < have and length == count and chunk.finish is None:
        # Rows ran ahead of the ids before (batches in 0.5.8-0.5.10) and are missing now.
        return Place(CUMULATIVE, length)
    if have == 0 and length > count:
        if _may_have_prompt_ids(chunk) and length - count <= _MOST_PROMPT_IDS:
            return Place(INCREMENTAL, length - count)
        if "index" not in chunk.top and "text" in chunk.top:
            # Only batches (and --skip-tokenizer-init of 0.4.6) serialise lists that have run ahead.
            raise misfit("output_ids", length, have, count, _IDS_HINT)
    return place_counted(
        "output_ids", length, have, count, terminal=chunk.finish is not None, queue_abort=False, hint=_IDS_HINT
    )


def _may_have_prompt_ids(chunk: Chunk) -> bool:
    # 0.5.1-0.5.4: weight_version came in 0.5.1, the retraction counters in 0.5.5.
    meta = chunk.meta
    return "weight_version" in meta and "total_retractions" not in meta and "num_retractions" not in meta


def _abort_ids(state: OutputState, step: TokenStep, chunk: Chunk, ids: array[int], count: int | None) -> TokenStep:
    """An abort out of the waiting queue: the whole list, ``[last id]``, or pending deltas + ``[last id]``."""
    have = len(state.token_ids)
    length = len(ids)
    if count is None or length == 0 or (have == count and ids[-1:] == state.token_ids[-1:] and length <= have):
        return step
    is_glued = length >= 2 and have + length - 1 == count and ids[-1:] == ids[-2:-1]
    if length == count and have <= length:
        if ids[:have] == state.token_ids:
            if is_glued and ids[have:] != ids[:-1]:
                return _by_text(state, step, chunk, ids)
            return step._replace(ids=ids[have:], glued=None if is_glued else False)
        if not is_glued:
            raise _changed(state, ids)
    if is_glued:
        return step._replace(ids=ids[:-1], glued=True)
    if length == 1 and have + 1 == count:
        return step._replace(ids=ids)
    if length == 1 and have < count:
        # Only the last id of those that the server dropped for a slow reader: keep what arrived, an exact prefix.
        return step
    raise misfit("output_ids", length, have, count, _IDS_HINT)


def _by_text(state: OutputState, step: TokenStep, chunk: Chunk, ids: array[int]) -> TokenStep:
    """Ids of an abort that are both the whole list and pending deltas + ``[last id]``: its text must tell.

    :raises ProtocolError: it does not.
    """
    text = chunk.text or ""
    may_be_whole = text.startswith(state.text.value())
    may_be_glued = state.text.pending_in(text) is not None
    if may_be_whole == may_be_glued:
        raise ProtocolError(
            f"output_ids {ids.tolist()[-8:]} of the abort chunk are the whole list, or pending ids and the last one "
            "again, and its text tells neither: ask for return_logprob, whose rows do"
        )
    have = len(state.token_ids)
    return step._replace(ids=ids[:-1] if may_be_glued else ids[have:], glued=may_be_glued)


def _changed(state: OutputState, ids: array[int]) -> ProtocolError:
    """The error for ids of which one, at least, is not what it was; the message names the first."""
    known = state.token_ids
    at = next(at for at, (was, now) in enumerate(zip(known, ids, strict=False)) if was != now)
    return ProtocolError(
        f"output_ids[{at}] was {known[at]} and is now {ids[at]}: a cumulative chunk must repeat the ids "
        "already sent. Was the request restarted within the stream (a retry in a gateway)?"
    )
