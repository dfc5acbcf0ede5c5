"""The plan for one chunk: every lane placed, every claim checked, nothing changed yet.

Here stand the rules that need more than one lane: chunks that end an output in an odd way, which combinations a server
started in a given mode can send, and where replay arrays belong.

Questions are asked in the order of how surely they can be answered, so that a sure answer is not spoiled by a guess:

1. Is it of this request (``request.py``)?  An ``id`` alone shows it.
2. Does it carry tokens at all?  A scored prompt, a rejected request and an empty abort do not, whatever they list.
3. Is it an abort out of the waiting queue?  Only such a chunk lacks ``prompt_tokens``; it is a snapshot in every mode.
4. If so, is it glued after pending deltas?  Rows beyond their counter prove it, then ids: the pending ones and the
   last one again.  Both are asked before "are these the last tokens", since equal tokens make that true of glued ids as
   well; where the ids are also the whole list, the text is asked.
5. Snapshot or delta?  By counters, for rows before ids before other lists: a list as long as its counter, or as what is
   new.  An empty list answers nothing, and a lane that is known stays.
6. Only then the oddities that a wrong list could imitate: the last id repeated, ids lost, prompt ids in front.
7. What does this prove of the text, which proves nothing itself (``evidence.py``)?  The prefix test comes last.
8. Are the values those that are known, and do all counters hold?

Facts: SGLang ``managers/tokenizer_manager.py::_handle_abort_req`` (queue aborts),
``managers/schedule_batch.py::set_finish_with_abort`` (validation aborts).
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ProtocolError
from ..limits import MAX_TOKENS
from ..replay import ReplayArray, TopPReplay
from .chunk import Chunk
from .evidence import is_from_0_5_10, plan_text
from .extras import ExtraStep, plan_extras
from .lanes import CUMULATIVE, INCREMENTAL
from .replays import plan_top_p, replay_array
from .request import check_request
from .state import OutputState
from .text import TextStep
from .tokens import TokenStep, plan_tokens

_EXTRAS_HINT = "The server sent an incomplete list (a slow reader on an old version?), or a gateway changed it"


class Plan(NamedTuple):
    """What a chunk does to an output.  ``tokens`` is None where its tokens are to be left out."""

    tokens: TokenStep | None
    text: TextStep | None
    text_missing: bool
    extras: list[ExtraStep]
    top_p: TopPReplay | None
    whole_top_p: bool
    routed_experts: ReplayArray | None
    indexer_topk: ReplayArray | None


def plan_chunk(state: OutputState, chunk: Chunk) -> Plan:
    """Plan a chunk.  Changes nothing.

    :raises StreamError: the chunk does not fit; which of its classes says how.
    """
    finish = chunk.finish
    check_request(state, chunk)
    if finish is not None:
        if _is_probe(state, chunk):
            return _without_tokens(state.text.plan_nothing())
        if finish.type == "abort":
            if _is_rejected(state, chunk):
                return _without_tokens(state.text.plan_nothing())
            if _is_empty_abort(chunk):
                known = state.text
                return _without_tokens(known.plan_abort(chunk.text, False) if chunk.text else known.plan_nothing())
    queue_abort = finish is not None and _is_queue_abort(state, chunk)
    try:
        tokens = plan_tokens(state, chunk, queue_abort=queue_abort)
    except ProtocolError as error:
        if finish is not None and finish.type == "abort" and not queue_abort and len(chunk.rows or ()) > 1:
            raise ProtocolError(
                f"{error} The chunk is an abort with meta_info.prompt_tokens: an abort that repeats everything "
                "has none (SGLang's _handle_abort_req). Does a gateway add it?"
            ) from error
        raise
    total = len(state.token_ids) + len(tokens.ids)
    if total > MAX_TOKENS:
        raise ProtocolError(
            f"output {state.index} would have {total} tokens, {MAX_TOKENS} are taken at most: no model's context is "
            "that long; look who sends this stream"
        )
    _check_count(state, chunk, total, queue_abort=queue_abort)
    _check_rows(state, chunk, tokens, total)
    if state.mode != "auto":
        _check_mode(state, chunk, tokens)
    text = plan_text(state, chunk, tokens, total, queue_abort=queue_abort)
    if not queue_abort:
        _check_delta(state, chunk, tokens, text)
    extras = plan_extras(
        chunk.meta,
        state.extras,
        total=total,
        rows_total=chunk.rows_total,
        terminal=finish is not None,
        queue_abort=queue_abort,
        hint=_EXTRAS_HINT,
    )
    top_p, whole = plan_top_p(state, chunk.meta, len(tokens.ids), total)
    return Plan(
        tokens,
        text,
        text is None and len(tokens.ids) > 0,
        extras,
        top_p,
        whole,
        replay_array(chunk.meta, "routed_experts"),
        replay_array(chunk.meta, "indexer_topk"),
    )


def _is_probe(state: OutputState, chunk: Chunk) -> bool:
    # max_new_tokens=0 scores the prompt: one logprob row for a token that is not part of the answer.
    return (
        chunk.completion == 0
        and not chunk.ids
        and bool(chunk.rows)
        and not state.token_ids
        and chunk.finish is not None
        and chunk.finish.type == "length"
    )


def _is_rejected(state: OutputState, chunk: Chunk) -> bool:
    # Validation abort: the scheduler put [0] in the prompt's place and sampled one token of no meaning. 503 is never
    # one: it sheds load or stops a request that ran too long, whose tokens are real.
    status = None if chunk.finish is None else chunk.finish.status_code
    return (
        status is not None
        and status >= 400
        and status != 503
        and not state.token_ids
        and not chunk.rows
        and not chunk.rows_total
        and chunk.meta.get("prompt_tokens") == 1
        and len(chunk.ids or ()) <= 1
        and (chunk.completion or 0) <= 1
    )


def _is_empty_abort(chunk: Chunk) -> bool:
    # Up to 0.5.4 an abort out of the queue says text "" and completion_tokens 0 whatever was sent before.
    return not chunk.completion and not chunk.ids and not chunk.rows and not chunk.rows_total


def _is_queue_abort(state: OutputState, chunk: Chunk) -> bool:
    # Only chunks made by _handle_abort_req lack prompt_tokens.
    if chunk.finish is None or chunk.finish.type != "abort" or chunk.meta.get("prompt_tokens"):
        return False
    return not state.begun or bool(state.meta.get("prompt_tokens"))


def _without_tokens(text: TextStep | None) -> Plan:
    return Plan(None, text, False, [], None, False, None, None)


def _check_count(state: OutputState, chunk: Chunk, total: int, *, queue_abort: bool) -> None:
    count = chunk.completion
    if count is None:
        return
    if state.count is not None and count < state.count:
        raise ProtocolError(
            f"meta_info.completion_tokens fell from {state.count} to {count}: the server began a second trajectory "
            "(input_embeds retraction), or the stream mixes two requests"
        )
    if count == total or (count > total and (queue_abort or not _counts_tokens(state, chunk))):
        return
    if count < total and chunk.finish is None and ("index" in chunk.top or "text" not in chunk.top):
        return  # live lists of a batch (0.4.6: and of tokens alone); the last chunk is a copy and must agree
    raise ProtocolError(
        f"meta_info.completion_tokens is {count}, but {total} tokens came in all. A server before 0.5.10 with "
        "speculative decoding sends surplus rows (upgrade it or switch that off); a gateway may have dropped a chunk"
    )


def _counts_tokens(state: OutputState, chunk: Chunk) -> bool:
    # 0.4.x sends neither ids nor (unless asked) rows: then there is nothing to count.
    return chunk.ids is not None or state.ids_sent or bool(chunk.rows) or state.rows_sent


def _check_delta(state: OutputState, chunk: Chunk, tokens: TokenStep, text: TextStep | None) -> None:
    """Where text or rows are deltas, ids that come with them are exactly the new tokens.

    Elsewhere they need not be: before 0.5.10 a slow reader loses ids, and the gRPC gateway repeats the last one.  Rows
    may have brought the tokens before (0.5.10 in a batch), so it is the counters that tell how many are new.
    """
    is_delta = tokens.rows_lane == INCREMENTAL or (text is not None and text.sure and text.lane == INCREMENTAL)
    sent = len(chunk.ids or ())
    if not is_delta or (not sent and (tokens.rows_lane == INCREMENTAL or not state.ids_sent)):
        return  # rows that are deltas show whether one is missing
    known = state.count or 0
    new = len(tokens.ids) if chunk.completion is None else chunk.completion - known
    if sent != new:
        raise ProtocolError(
            f"output_ids has {sent} entries in a chunk of deltas, but {new} tokens are new "
            f"(meta_info.completion_tokens was {known} and is now {chunk.completion}): a chunk was lost or came "
            "twice on the way. Look at the gateways between"
        )


def _check_rows(state: OutputState, chunk: Chunk, tokens: TokenStep, total: int) -> None:
    rows = len(state.logprobs) + len(tokens.rows.ids)
    if chunk.finish is None:
        return
    counted = chunk.rows_total
    if counted is not None and counted != rows:
        raise ProtocolError(
            f"meta_info.output_token_logprobs_length is {counted}, but {rows} rows of meta_info.output_token_logprobs "
            "came by the end of the output: logprobs were lost on the way. Look for a gateway that drops meta_info"
        )
    if rows and rows < total:
        raise ProtocolError(
            f"meta_info.output_token_logprobs covers {rows} of {total} tokens at the end of the output: the last rows "
            "did not come, so logprobs cannot be aligned. Look for a gateway that drops meta_info"
        )


def _check_mode(state: OutputState, chunk: Chunk, tokens: TokenStep) -> None:
    """Refuse lanes that no server version sends under the flag the caller stated."""
    found: str | None = None
    if state.mode == "cumulative":
        if tokens.rows_lane == INCREMENTAL:
            found = "meta_info.output_token_logprobs is incremental"
        elif tokens.ids_lane == INCREMENTAL and is_from_0_5_10(chunk):
            found = "output_ids is incremental (and the server is 0.5.10 or later)"
    elif tokens.ids_lane == CUMULATIVE:
        found = "output_ids is cumulative"
    elif tokens.rows_lane == CUMULATIVE and chunk.ids is None and not state.ids_sent and is_from_0_5_10(chunk):
        # Since 0.5.1 there are ids, and under this flag they are deltas; 0.4.x has none and knows no mode.
        found = "meta_info.output_token_logprobs is cumulative (and there are no output_ids)"
    if found is not None:
        other = INCREMENTAL if state.mode == CUMULATIVE else CUMULATIVE
        raise ProtocolError(
            f"mode={state.mode!r} was given, but {found}: the server was started "
            f"{'with' if other == INCREMENTAL else 'without'} --incremental-streaming-output. Set mode={other!r} or "
            "mode='auto', or change the server's flag (slime: --sglang-incremental-streaming-output)"
        )
