"""A frozen copy of one output, to put on an error, into a checkpoint, or through an object store.

It has the properties of its accumulator, can be pickled or written by ``to_bytes``, and ``Accumulator.restore`` makes
an accumulator of it.  The byte format is ``codec``'s; nothing here folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .codec import pack, unpack
from .errors import SnapshotError, StreamError
from .fold.native import text_of
from .fold.state import OutputState
from .views import Floats, Ints, freeze

if TYPE_CHECKING:
    from .errors import ServerError
    from .fold.finish import FinishReason
    from .replay import ReplayArray, TopPReplay

_KIND = "output"


class Snapshot:
    """One output at one moment.  Immutable; equal to another of the same content."""

    __slots__ = ("_state",)

    def __init__(self, state: OutputState) -> None:
        """Made by ``Accumulator.snapshot()``; ``state`` must be a copy that no other code changes."""
        self._state = state

    @property
    def index(self) -> int:
        """Which output of the request."""
        return self._state.index

    @property
    def token_ids(self) -> Sequence[int]:
        """Token ids received, int64."""
        return Ints(self._state.token_ids)

    @property
    def logprobs(self) -> Sequence[float | None]:
        """One per token id where they were asked for, else empty."""
        return Floats(self._state.logprobs)

    @property
    def finish_reason(self) -> FinishReason | None:
        """None if the output was cut."""
        return self._state.finish

    @property
    def error(self) -> ServerError | None:
        """The server's failure of this output, if it reported one."""
        return self._state.error

    @property
    def meta_info(self) -> Mapping[str, Any]:
        """Merged ``meta_info``, token-aligned lists left out."""
        view: Mapping[str, Any] = freeze(self._state.meta)
        return view

    @property
    def top_p(self) -> TopPReplay | None:
        """Top-p rows, if they came."""
        return self._state.top_p.value()

    @property
    def routed_experts(self) -> ReplayArray | None:
        """Routing replay, if it came."""
        return self._state.routed_experts

    @property
    def indexer_topk(self) -> ReplayArray | None:
        """Indexer replay, if it came."""
        return self._state.indexer_topk

    def text(self, decode: Callable[[Sequence[int]], str] | None = None) -> str:
        """As ``Accumulator.text``."""
        return text_of(self._state, decode)

    def to_bytes(self) -> bytes:
        """Versioned and checksummed bytes; no pickle inside, safe to load from anywhere."""
        return pack(_KIND, self._state.to_plain())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Snapshot:
        """The inverse of :meth:`to_bytes`.

        :raises SnapshotError: the bytes are truncated, altered, of a newer version, or no snapshot of ours.
        """
        plain = unpack(_KIND, data)
        try:
            return cls(OutputState.from_plain(plain))
        except (StreamError, TypeError, ValueError, KeyError) as error:
            raise SnapshotError(f"the snapshot's checksum holds but its content does not fit: {error}") from error

    def copy_state(self) -> OutputState:
        """A copy of the state, for an accumulator that continues from it."""
        return self._state.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        state = self._state
        finish = None if state.finish is None else state.finish.type
        return f"Snapshot(index={state.index}, tokens={len(state.token_ids)}, finish_reason={finish!r})"
