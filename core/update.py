"""What one chunk adds to an output: the immutable value that folding returns to the caller.

An :class:`Update` is a tuple underneath, because one is made per token and a tuple is the cheapest immutable object
Python has.  This module knows nothing of how an update is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from .views import freeze, thaw

if TYPE_CHECKING:
    from .fold.finish import FinishReason
    from .replay import ReplayArray, TopPReplay


class Update(tuple[Any, ...]):
    """What one chunk adds to one output.  Immutable, comparable with ``==``, picklable.

    To apply it: if ``replace``, drop everything that this call gave so far; append ``token_ids`` and ``logprobs``;
    cut the text to ``text_start`` characters and append ``text``.

    :ivar index: which output of the request (``n > 1``, batches); 0 otherwise.
    :ivar start: position in this call's output of ``token_ids[0]``.
    :ivar replace: drop what this call gave so far; this update contains all of it.
    :ivar token_ids: the new token ids.
    :ivar logprobs: one per token id (None where the server sent null), or empty when none came.
    :ivar text: new text; None when the server sent none.
    :ivar text_start: character offset where ``text`` starts; smaller than the length so far if the tail was rewritten.
    :ivar finish_reason: set on the output's last update.
    :ivar top_p: top-p rows of these tokens (or, with ``replace``, of the whole call).
    :ivar routed_experts: the routing replay array; comes with the last update.
    :ivar indexer_topk: the sparse-attention indexer's replay array; comes with the last update.
    :ivar meta_info: the chunk's own ``meta_info``, read-only, deeply; token-aligned lists hold only their new part.
    """

    __slots__ = ()

    def __new__(
        cls,
        index: int = 0,
        start: int = 0,
        replace: bool = False,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[float | None, ...] = (),
        text: str | None = None,
        text_start: int = 0,
        finish_reason: FinishReason | None = None,
        top_p: TopPReplay | None = None,
        routed_experts: ReplayArray | None = None,
        meta_info: Mapping[str, Any] | None = None,
        indexer_topk: ReplayArray | None = None,
    ) -> Update:
        meta: dict[str, Any] = {} if meta_info is None else thaw(meta_info)
        return tuple.__new__(
            cls,
            (
                index,
                start,
                replace,
                tuple(token_ids),
                tuple(logprobs),
                text,
                text_start,
                finish_reason,
                top_p,
                routed_experts,
                meta,
                indexer_topk,
            ),
        )

    if TYPE_CHECKING:
        # For type checkers the fields are what they are; at run time each is one C-level getter (below).
        @property
        def index(self) -> int: ...  # type: ignore[override]
        @property
        def start(self) -> int: ...
        @property
        def replace(self) -> bool: ...
        @property
        def token_ids(self) -> tuple[int, ...]: ...
        @property
        def logprobs(self) -> tuple[float | None, ...]: ...
        @property
        def text(self) -> str | None: ...
        @property
        def text_start(self) -> int: ...
        @property
        def finish_reason(self) -> FinishReason | None: ...
        @property
        def top_p(self) -> TopPReplay | None: ...
        @property
        def routed_experts(self) -> ReplayArray | None: ...
        @property
        def indexer_topk(self) -> ReplayArray | None: ...
    else:
        index = property(itemgetter(0))
        start = property(itemgetter(1))
        replace = property(itemgetter(2))
        token_ids = property(itemgetter(3))
        logprobs = property(itemgetter(4))
        text = property(itemgetter(5))
        text_start = property(itemgetter(6))
        finish_reason = property(itemgetter(7))
        top_p = property(itemgetter(8))
        routed_experts = property(itemgetter(9))
        indexer_topk = property(itemgetter(11))

    @property
    def meta_info(self) -> Mapping[str, Any]:
        """This chunk's ``meta_info``: a read-only view, made when it is asked for."""
        view: Mapping[str, Any] = freeze(meta_of(self))
        return view

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Update):
            return NotImplemented
        return self[:10] == other[:10] and self[11:] == other[11:] and meta_of(self) == meta_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # It holds a mapping.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __reduce__(self) -> tuple[Any, ...]:
        return Update, (*self[:10], meta_of(self), *self[11:])

    def __repr__(self) -> str:
        shown = [f"index={self.index}", f"start={self.start}", f"token_ids={_short(self.token_ids)}"]
        shown.append(f"logprobs={_short(self.logprobs)}")
        shown.append(f"text={_short(self.text)} at {self.text_start}")
        if self.replace:
            shown.append("replace=True")
        if self.finish_reason is not None:
            shown.append(f"finish_reason={self.finish_reason.type!r}")
        return f"Update({', '.join(shown)})"


def meta_of(update: Update) -> dict[str, Any]:
    """The dict that ``meta_info`` shows, shared by all callers: copy it before you change or keep it.

    Updates of the fast path carry what it is made of instead: a template and the contents of its slots.
    """
    meta: Any = update[10]
    if type(meta) is tuple:
        template, contents = meta
        meta = template.parsed(contents)["meta_info"]
    fields: dict[str, Any] = meta
    return fields


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
