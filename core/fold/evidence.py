"""What the other lanes, and the keys that tell a server's version, prove about the text of a chunk.

Text alone does not show whether it is a delta or a snapshot.  Knows what was planned for the tokens; knows nothing of
how a text is kept (``text.py``).
"""

from __future__ import annotations

from ..errors import ProtocolError
from .chunk import Chunk
from .lanes import CUMULATIVE, INCREMENTAL, Lane, not_together
from .state import OutputState
from .text import TextStep
from .tokens import ROWS, TokenStep


def plan_text(state: OutputState, chunk: Chunk, tokens: TokenStep, total: int, *, queue_abort: bool) -> TextStep | None:
    """Place the text of a chunk; None if it has none that counts."""
    text = chunk.text
    lane = state.text
    if text is None:
        return None
    if queue_abort:
        if not text and total and (not lane.seen or lane.missing):
            return None  # --skip-tokenizer-init: such an abort says "" where there never was a text
        if total < (chunk.completion or 0):
            return None  # ids were dropped for good; text must not run ahead of them
        return lane.plan_abort(text, tokens.glued)
    evidence, sure = _text_evidence(state, chunk, tokens)
    if not lane.sure:
        return lane.plan(text, evidence, sure)
    if sure and evidence != lane.lane:
        raise _text_contradicted(lane.lane, tokens)
    return lane.plan(text, None, False)


def _text_evidence(state: OutputState, chunk: Chunk, tokens: TokenStep) -> tuple[Lane | None, bool]:
    """What ids, rows and version-bound keys prove about the text."""
    rows, ids, meta = tokens.rows_lane, tokens.ids_lane, chunk.meta
    if chunk.ids and chunk.completion is not None and chunk.completion == state.count:
        return CUMULATIVE, True  # ids although no token is new: a snapshot, or the gRPC gateway's repeated last id
    if rows == INCREMENTAL:
        return INCREMENTAL, True
    if ids == CUMULATIVE:
        return CUMULATIVE, True
    if ids == INCREMENTAL:
        if is_from_0_5_10(chunk):
            return INCREMENTAL, True
        if rows == CUMULATIVE:
            return CUMULATIVE, True
        if state.mode == "cumulative":
            return CUMULATIVE, True
        # weight_version without dp_rank: a Python server of 0.5.1-0.5.9, or the gRPC gateway. Neither key: the Rust
        # server or Dynamo.
        return (CUMULATIVE, False) if "weight_version" in meta else (INCREMENTAL, True)
    if not state.ids_sent and chunk.ids is None:
        grown = chunk.completion is not None and state.count is not None and chunk.completion > state.count
        if rows == CUMULATIVE or grown:
            return CUMULATIVE, True  # up to 0.4.10 there were no ids and the text was always a snapshot
    if state.mode == CUMULATIVE:
        return CUMULATIVE, True
    if state.mode == INCREMENTAL:
        # Up to 0.5.9 the text was a snapshot under either flag.
        return (CUMULATIVE if "weight_version" in meta and not is_from_0_5_10(chunk) else INCREMENTAL), False
    return None, False


def _text_contradicted(known: Lane | None, tokens: TokenStep) -> ProtocolError:
    if known == CUMULATIVE:
        return not_together("output_ids" if tokens.rows_lane != INCREMENTAL else ROWS, "text")
    return not_together("text", "output_ids")


def is_from_0_5_10(chunk: Chunk) -> bool:
    """The server is at least that new."""
    return chunk.rows_total is not None or "dp_rank" in chunk.meta or "num_retractions" in chunk.meta
