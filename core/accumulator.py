"""One output: chunks in, updates out, whatever mix of deltas and snapshots the chunks are.

``add`` plans every lane first and commits only when nothing can fail any more, so a refused chunk changes nothing.
The rules are in ``fold.py``; here are the public face, the commit, and the making of updates.  Knows nothing of bytes,
events, other outputs or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from .errors import PayloadError, ServerError, StreamError
from .fast.steady import steady_form
from .fold.chunk import NOTHING_SKIPPED, Chunk, Skips, read_chunk
from .fold.extras import Extra
from .fold.finish import FinishReason
from .fold.lanes import Lane, Mode
from .fold.native import native_response, rows_of, text_of
from .fold.plan import Plan, plan_chunk
from .fold.state import OutputState
from .fold.tokens import TokenStep
from .replay.arrays import ReplayArray, TopPReplay
from .replay.top_p_rows import TopPRows
from .snapshot import Snapshot
from .update import Update
from .views import Floats, Ints, copy_json, freeze

#: Values that a later null must not erase (routed_experts is null in every chunk but the last of 0.5.7-0.5.9).
_KEPT_OVER_NULL = frozenset(
    {
        "input_token_logprobs",
        "input_top_logprobs",
        "input_token_ids_logprobs",
        "hidden_states",
        "routed_experts",
        "indexer_topk",
        "top_p_token_ids",
        "top_p_token_offsets",
        "top_p_kept_token_ids",
        "top_p_kept_token_offsets",
    }
)
_MOST_BITS = 63
_CHUNK_KEYS = frozenset({"text", "output_ids", "meta_info", "index", "error"})


class Accumulator:
    """One output of one ``/generate`` call, folded from its chunks in order.

    :param mode: ``"auto"`` finds out per lane what is a delta and what a snapshot.  ``"cumulative"`` and
        ``"incremental"`` state how the server was started (``--incremental-streaming-output``); a stream that no server
        version sends that way is then refused.
    :param index: the output's position in the request (SGLang's ``index``).
    :raises ValueError: an unknown ``mode``, or an ``index`` that is no whole number from 0.
    """

    __slots__ = ("_state",)

    def __init__(self, mode: Mode = "auto", *, index: int = 0) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be 'auto', 'cumulative' or 'incremental', not {mode!r}")
        if type(index) is not int or index < 0:
            raise ValueError(f"index must be a whole number from 0, not {index!r:.80}")
        self._state = OutputState(mode, index)

    def add(self, chunk: Mapping[str, Any]) -> Update:
        """Fold one parsed data event.  Atomic: it raises and changes nothing, or returns what is new.

        The chunk is copied; it is neither kept nor changed.  After the output's terminal chunk nothing more is taken,
        and the update is empty.

        :raises PayloadError: it is no chunk, or a field has the wrong type.
        :raises ProtocolError: lengths, prefix or mode do not fit.
        :raises ReplayError: a replay array is not what it says.
        :raises ServerError: it is an error event; the failure also stays in :attr:`error`.
        """
        try:
            if not isinstance(chunk, Mapping):
                raise PayloadError(f"a chunk must be a mapping, found {type(chunk).__name__}")
            data: dict[str, Any] = copy_json(chunk)
            failure = server_error(data)
            if failure is not None:
                failure.index = self._state.index
                self.fail(failure)
                raise failure
            return self.fold(data)
        except StreamError as error:
            error.partial = {self._state.index: self.snapshot()}
            raise

    def fold(self, data: dict[str, Any], skips: Skips = NOTHING_SKIPPED) -> Update:
        """As :meth:`add`, for a payload that the caller gives away, maybe without what repeats (``skips``).

        Errors carry no ``partial``: the decoder, which knows all outputs, puts it on.
        """
        state = self._state
        if state.finish is not None or state.error is not None:
            return _nothing_new(state)
        state.settle()
        chunk = read_chunk(data, skips)
        plan = plan_chunk(state, chunk)
        return _commit(state, chunk, plan)

    @property
    def state(self) -> OutputState:
        """The state behind the properties; for the decoder, which only reads it."""
        return self._state

    @property
    def is_over(self) -> bool:
        """A terminal chunk or an error event came: nothing more is taken."""
        return self._state.finish is not None or self._state.error is not None

    @property
    def index(self) -> int:
        """The output's position in the request."""
        return self._state.index

    @property
    def lanes(self) -> Mapping[str, Lane | None]:
        """What each lane (text, output_ids, logprobs, other lists by name) was found to be; None: not known yet."""
        state = self._state
        found: dict[str, Lane | None] = {
            "text": state.text.lane if state.text.seen else None,
            "output_ids": state.ids_lane,
            "logprobs": state.rows_lane,
        }
        for name, extra in state.extras.items():
            if extra.items is not None:
                found[name] = extra.lane
        return MappingProxyType(found)

    @property
    def token_ids(self) -> Sequence[int]:
        """Token ids so far: a live, read-only view of int64 values; slices are tuples."""
        return Ints(self._state.token_ids)

    @property
    def logprobs(self) -> Sequence[float | None]:
        """Logprobs so far: one per token id when they were asked for, else empty.  None where the server sent null.

        A live, read-only view of float64 values; slices are tuples.
        """
        return Floats(self._state.logprobs)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Set by the terminal chunk."""
        return self._state.finish

    @property
    def error(self) -> ServerError | None:
        """The server failed this one output (an error event with its ``index``)."""
        return self._state.error

    @property
    def meta_info(self) -> Mapping[str, Any]:
        """``meta_info`` merged over the chunks, later ones winning; read-only; token-aligned lists are left out."""
        self._state.settle()
        view: Mapping[str, Any] = freeze(dict(self._state.meta))
        return view

    @property
    def top_p(self) -> TopPReplay | None:
        """Top-p rows received, one per token id once the terminal chunk is in."""
        return self._state.top_p.value()

    @property
    def routed_experts(self) -> ReplayArray | None:
        """Routing of each position, from the terminal chunk."""
        return self._state.routed_experts

    @property
    def indexer_topk(self) -> ReplayArray | None:
        """Positions the sparse-attention indexer chose, from the terminal chunk."""
        return self._state.indexer_topk

    def text(self, decode: Callable[[Sequence[int]], str] | None = None) -> str:
        """The server's own text.

        ``decode(token_ids)`` is called, once, only where the server sent no text with its tokens
        (``--skip-tokenizer-init``); without ``decode`` such an output's text is ``""``.
        """
        return text_of(self._state, decode)

    def snapshot(self) -> Snapshot:
        """A frozen copy of everything so far."""
        return Snapshot(self._state.copy())

    @classmethod
    def restore(cls, snapshot: Snapshot) -> Accumulator:
        """An accumulator that goes on where ``snapshot`` was taken.

        :raises TypeError: it is no :class:`~ssefold.Snapshot` (bytes are read by ``Snapshot.from_bytes``).
        """
        if not isinstance(snapshot, Snapshot):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"restore() takes a Snapshot, not {type(snapshot).__name__}")
        restored = cls.__new__(cls)
        restored._state = snapshot.copy_state()
        return restored

    def native_response(self, decode: Callable[[Sequence[int]], str] | None = None) -> dict[str, Any]:
        """What the same request gives with ``stream=false``: a plain dict of the caller's own."""
        self._state.settle()
        return native_response(self._state, decode)

    def fail(self, error: ServerError) -> None:
        """Mark this output as failed by the server; what arrives for it later is ignored, another failure too."""
        if self._state.finish is None and self._state.error is None:
            self._state.error = error
            self._state.steady = None

    def __repr__(self) -> str:
        state = self._state
        finish = None if state.finish is None else state.finish.type
        return f"Accumulator(index={state.index}, tokens={len(state.token_ids)}, finish_reason={finish!r})"


def server_error(data: Mapping[str, Any]) -> ServerError | None:
    """The failure that a payload reports under ``error``, or None (``entrypoints/http_server.py::stream_results``)."""
    reported = data.get("error")
    return None if reported is None else failure_of(reported)


def failure_of(reported: object) -> ServerError:
    """The failure that a server reports in whatever form: an object with ``message``, a string, anything."""
    code: int | str | None = None
    kind: str | None = None
    if isinstance(reported, Mapping):
        message = _words(reported.get("message", reported))
        code = reported.get("code") if isinstance(reported.get("code"), (int, str)) else None
        if isinstance(code, int) and code.bit_length() > _MOST_BITS:
            code = None
        kind = reported.get("type") if isinstance(reported.get("type"), str) else None
    else:
        message = _words(reported)
    noted = ", ".join(f"{name} {value}" for name, value in (("code", code), ("type", kind)) if value is not None)
    return ServerError(
        f"the server reported inside the stream: {message}{f' ({noted})' if noted else ''}",
        message=message,
        code=code,
        type=kind,
    )


def _words(value: object) -> str:
    try:
        return str(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return f"a {type(value).__name__} that can not be printed"


def _nothing_new(state: OutputState) -> Update:
    return tuple.__new__(
        Update, (state.index, len(state.token_ids), False, (), (), None, state.text.length, None, None, None, {}, None)
    )


def _commit(state: OutputState, chunk: Chunk, plan: Plan) -> Update:
    """Carry out a plan.  Nothing here can fail."""
    meta, tokens = chunk.meta, plan.tokens
    start = len(state.token_ids)
    replace = plan.whole_top_p
    aligned: set[str] = set()
    if tokens is not None:
        _append(state, chunk, tokens)
        replace = replace or tokens.caught_up
        if chunk.rows is not None and tokens.rows_first:
            meta["output_token_logprobs"] = chunk.rows[tokens.rows_first :]
        aligned.add("output_token_logprobs")
    for name, lane, new in plan.extras:
        extra = state.extras.setdefault(name, Extra(lane, []))
        extra.lane = lane
        if new is None or extra.items is None:
            extra.items = None
            continue
        if not extra.items:
            state.meta.pop(name, None)  # an empty list, which said nothing of what it is
        extra.items.extend(new)
        meta[name] = new
        aligned.add(name)
    text_start = state.text.length
    text: str | None = None
    if plan.text is not None:
        text_start, text = plan.text.start, plan.text.tail
        state.text.apply(plan.text)
    if plan.text_missing:
        state.text.missing = True
    for name in chunk.skips.constants:
        if name in meta:
            meta[name] = state.meta[name]
    _merge_meta(state, meta, aligned)
    for name, value in chunk.top.items():
        if name in _CHUNK_KEYS or name in chunk.skips.constants:
            continue
        if value is not None or name not in state.other:
            state.other[name] = value
    if plan.top_p is not None:
        if plan.whole_top_p:
            state.top_p = TopPRows(plan.top_p)
        else:
            state.top_p.append(plan.top_p)
    if plan.routed_experts is not None:
        state.routed_experts = plan.routed_experts
    if plan.indexer_topk is not None:
        state.indexer_topk = plan.indexer_topk
    if chunk.completion is not None and tokens is not None:
        state.count = chunk.completion
    state.ids_sent = state.ids_sent or chunk.ids is not None
    state.begun = True
    state.finish = chunk.finish
    state.steady = None if tokens is None else steady_form(state, chunk)
    ids = state.token_ids[start:]
    logprobs = state.logprobs[start:]
    if replace:
        start, ids, logprobs = 0, state.token_ids, state.logprobs
        text_start, text = 0, (state.text.value() if state.text.seen else None)
        meta = _whole(state, meta, aligned)
    return tuple.__new__(
        Update,
        (
            state.index,
            start,
            replace,
            tuple(ids),
            Floats(logprobs)[:],
            text,
            text_start,
            chunk.finish,
            state.top_p.value() if replace else plan.top_p,
            plan.routed_experts,
            meta,
            plan.indexer_topk,
        ),
    )


def _append(state: OutputState, chunk: Chunk, tokens: TokenStep) -> None:
    rows = tokens.rows
    texts = rows.texts
    if rows.ids:
        known: list[str | None] | None = state.row_texts
        if texts is not None and known is None:
            known = state.row_texts = []
            known.extend([None] * len(state.logprobs))
        if known is not None:
            known.extend([None] * len(rows.ids) if texts is None else texts)
        state.row_width = rows.width
    state.token_ids.extend(tokens.ids)
    state.logprobs.extend(rows.logprobs)
    state.rows_lane = tokens.rows_lane
    state.ids_lane = tokens.ids_lane
    state.rows_sent = state.rows_sent or chunk.rows is not None
    state.catch_ups += tokens.caught_up


def _merge_meta(state: OutputState, meta: dict[str, Any], aligned: set[str]) -> None:
    merged = state.meta
    for name, value in meta.items():
        if name in aligned or (value is None and name in _KEPT_OVER_NULL and name in merged):
            continue
        merged[name] = value


def _whole(state: OutputState, meta: dict[str, Any], aligned: set[str]) -> dict[str, Any]:
    """``meta`` for an update that replaces: token-aligned lists from the first token on."""
    whole = dict(meta)
    if state.rows_sent:
        whole["output_token_logprobs"] = rows_of(state)
    for name, extra in state.extras.items():
        if extra.items is not None:
            whole[name] = list(extra.items)
    return whole
