"""One output: chunks in, updates out, whatever mix of deltas and snapshots the chunks are.

``add`` plans every lane first and commits only when nothing can fail any more, so a refused chunk changes nothing.
The rules are in ``fold/``; this is the public class.  Knows nothing of bytes, events, other outputs or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from .errors import PayloadError, ServerError, StreamError
from .fold.chunk import read_chunk
from .fold.commit import commit, nothing_new
from .fold.failure import server_error
from .fold.finish import FinishReason
from .fold.lanes import Lane, Mode
from .fold.native import native_response, text_of
from .fold.plan import plan_chunk
from .fold.request import check_repeat
from .fold.state import OutputState
from .replay import ReplayArray, TopPReplay
from .snapshot import Snapshot
from .update import Update
from .views import Floats, Ints, copy_json, freeze


class Accumulator:
    """One output of one ``/generate`` call, folded from its chunks in order.

    :param mode: ``"auto"`` detects for each lane whether it is a delta or a snapshot.  ``"cumulative"`` and
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
        """Fold one parsed data event and return what is new.  Atomic: if it raises, it has changed nothing.

        The chunk is copied; it is neither kept nor changed.  After the output's terminal chunk, a repeat of what is
        known gives an empty update.

        :raises PayloadError: it is no chunk, or a field has the wrong type.
        :raises ProtocolError: lengths, prefix or mode do not fit, the chunk is of another request, or it goes on after
            the output's end.
        :raises ReplayError: a replay array is invalid.
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

    def fold(self, data: dict[str, Any]) -> Update:
        """As :meth:`add`, for a payload that the caller gives away.

        Errors carry no ``partial``: the decoder, which knows all outputs, puts it on.
        """
        state = self._state
        if state.error is not None:
            return nothing_new(state)
        state.settle()
        chunk = read_chunk(data)
        if state.finish is not None:
            check_repeat(state, chunk)
            return nothing_new(state)
        return commit(state, chunk, plan_chunk(state, chunk))

    @property
    def state(self) -> OutputState:
        """The state that the properties show; for the decoder, which only reads it."""
        return self._state

    @property
    def is_over(self) -> bool:
        """A terminal chunk or an error event has arrived: later chunks add nothing."""
        return self._state.finish is not None or self._state.error is not None

    @property
    def index(self) -> int:
        """The output's position in the request."""
        return self._state.index

    @property
    def lanes(self) -> Mapping[str, Lane | None]:
        """The detected mode of each lane (text, output_ids, logprobs, other lists by name); None: not known yet."""
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
        """An accumulator that continues from ``snapshot``.

        :raises TypeError: it is no :class:`~ssefold.Snapshot` (bytes are read by ``Snapshot.from_bytes``).
        """
        if not isinstance(snapshot, Snapshot):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"restore() takes a Snapshot, not {type(snapshot).__name__}")
        restored = cls.__new__(cls)
        restored._state = snapshot.copy_state()
        return restored

    def native_response(self, decode: Callable[[Sequence[int]], str] | None = None) -> dict[str, Any]:
        """What the same request returns with ``stream=false``: a plain dict that the caller may change."""
        self._state.settle()
        return native_response(self._state, decode)

    def fail(self, error: ServerError) -> None:
        """Mark this output as failed by the server; later chunks and failures of it are ignored."""
        if self._state.finish is None and self._state.error is None:
            self._state.error = error
            self._state.version += 1

    def __repr__(self) -> str:
        state = self._state
        finish = None if state.finish is None else state.finish.type
        return f"Accumulator(index={state.index}, tokens={len(state.token_ids)}, finish_reason={finish!r})"
