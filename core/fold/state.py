"""Everything one output has received so far: the state that folding reads and a commit changes.

A plain container.  It knows how to turn itself into plain data and back, and holds no rule of folding.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import ServerError
from ..replay import ReplayArray, TopPReplay, TopPRows
from ..views import thaw
from .check import check_plain
from .extras import Extra
from .finish import FinishReason
from .lanes import Lane, Mode
from .text import TextLane

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
_CHUNK_KEYS = frozenset({"text", "output_ids", "meta_info", "index", "error"})


class Form(Protocol):
    """What the fast path knows of a payload's form."""

    def parsed(self, contents: Sequence[bytes]) -> dict[str, Any]:
        """The payload with these contents in its slots."""
        ...


class OutputState:
    """The state of one output.  Arrays: ``token_ids`` int64, ``logprobs`` float64 with NaN for null."""

    __slots__ = (
        "begun",
        "catch_ups",
        "count",
        "error",
        "extras",
        "finish",
        "ids_lane",
        "ids_sent",
        "index",
        "indexer_topk",
        "late",
        "logprobs",
        "meta",
        "mode",
        "other",
        "routed_experts",
        "row_texts",
        "row_width",
        "rows_lane",
        "rows_sent",
        "text",
        "token_ids",
        "top_p",
        "version",
    )

    def __init__(self, mode: Mode, index: int) -> None:
        self.mode: Mode = mode
        self.index: int = index
        self.token_ids: array[int] = array("q")
        self.logprobs: array[float] = array("d")
        #: Third elements of the rows; None as long as every one was null.
        self.row_texts: list[str | None] | None = None
        self.row_width: int = 3
        self.text: TextLane = TextLane()
        self.ids_lane: Lane | None = None
        self.rows_lane: Lane | None = None
        #: ``output_ids`` / logprob rows came at least once.
        self.ids_sent: bool = False
        self.rows_sent: bool = False
        #: How often rows arrived late, for tokens that had been returned without.
        self.catch_ups: int = 0
        self.extras: dict[str, Extra] = {}
        #: meta_info merged over the chunks, token-aligned lists left out.
        self.meta: dict[str, Any] = {}
        #: The last payload of the fast path, not merged yet: its template, and the new contents of its slots.
        self.late: tuple[Form, tuple[bytes, ...]] | None = None
        #: Other top-level keys (prompt_token_ids, ...), the last of each.
        self.other: dict[str, Any] = {}
        self.count: int | None = None
        #: A chunk came.
        self.begun: bool = False
        self.finish: FinishReason | None = None
        self.error: ServerError | None = None
        self.top_p: TopPRows = TopPRows()
        self.routed_experts: ReplayArray | None = None
        self.indexer_topk: ReplayArray | None = None
        #: Goes up with each change that the fast path has not made, by whomever.
        self.version: int = 0

    def settle(self) -> None:
        """Merge what the fast path left: its payloads all have the same keys, so only the last one's values count."""
        late = self.late
        if late is not None:
            self.late = None
            template, contents = late
            self.merge(template.parsed(contents))

    def merge(self, payload: dict[str, Any], *, without_rows: bool = True) -> None:
        """Keep what a chunk says beside tokens and text: the last value of each key, token-aligned lists left out."""
        merged = self.meta
        for name, value in (payload.get("meta_info") or {}).items():
            if name == "output_token_logprobs" and without_rows:
                continue
            if value is None and name in _KEPT_OVER_NULL and name in merged:
                continue
            extra = self.extras.get(name)
            if extra is None or extra.items is None:
                merged[name] = value
        for name, value in payload.items():
            if name not in _CHUNK_KEYS and (value is not None or name not in self.other):
                self.other[name] = value

    def copy(self) -> OutputState:
        """A copy that shares nothing either side may change; values inside lists are never changed by anybody."""
        self.settle()
        twin = OutputState(self.mode, self.index)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.token_ids = self.token_ids[:]
        twin.logprobs = self.logprobs[:]
        twin.row_texts = None if self.row_texts is None else list(self.row_texts)
        twin.text = TextLane.from_state(self.text.state())
        twin.extras = {
            name: extra if extra.items is None else Extra(extra.lane, list(extra.items))
            for name, extra in self.extras.items()
        }
        twin.meta = dict(self.meta)
        twin.top_p = self.top_p.copy()
        twin.other = dict(self.other)
        return twin

    def to_plain(self) -> dict[str, Any]:
        """Copy into plain data: JSON-like values, arrays and bytes."""
        self.settle()
        top_p = self.top_p.value()
        return {
            "mode": self.mode,
            "index": self.index,
            "token_ids": self.token_ids[:],
            "logprobs": self.logprobs[:],
            "row_texts": None if self.row_texts is None else list(self.row_texts),
            "row_width": self.row_width,
            "text": self.text.state(),
            "ids_lane": self.ids_lane,
            "rows_lane": self.rows_lane,
            "ids_sent": self.ids_sent,
            "rows_sent": self.rows_sent,
            "extras": {name: extra.state() for name, extra in self.extras.items()},
            "meta": dict(self.meta),
            "other": dict(self.other),
            "count": self.count,
            "begun": self.begun,
            "finish": None if self.finish is None else thaw(self.finish.raw),
            "error": _error_to_plain(self.error),
            "top_p": None if top_p is None else [top_p.token_ids, top_p.offsets],
            "routed_experts": None if self.routed_experts is None else self.routed_experts.values,
            "indexer_topk": None if self.indexer_topk is None else self.indexer_topk.values,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> OutputState:
        """The inverse of :meth:`to_plain`; the copy shares nothing that either side may change.

        :raises TypeError, ValueError, KeyError, StreamError: ``plain`` was not made by :meth:`to_plain`.
        """
        check_plain(plain)
        state = cls(plain["mode"], plain["index"])
        state.token_ids = plain["token_ids"][:]
        state.logprobs = plain["logprobs"][:]
        state.row_texts = None if plain["row_texts"] is None else list(plain["row_texts"])
        state.row_width = plain["row_width"]
        state.text = TextLane.from_state(plain["text"])
        state.ids_lane = plain["ids_lane"]
        state.rows_lane = plain["rows_lane"]
        state.ids_sent = plain["ids_sent"]
        state.rows_sent = plain["rows_sent"]
        for name, extra in plain["extras"].items():
            state.extras[name] = Extra(extra["lane"], None if extra["items"] is None else list(extra["items"]))
        state.meta = dict(plain["meta"])
        state.other = dict(plain["other"])
        state.count = plain["count"]
        state.begun = plain["begun"]
        state.finish = FinishReason.parse(plain["finish"])
        state.error = _error_from_plain(plain["error"])
        if plain["top_p"] is not None:
            token_ids, offsets = plain["top_p"]
            state.top_p = TopPRows(TopPReplay(token_ids, offsets))
        if plain["routed_experts"] is not None:
            state.routed_experts = ReplayArray(plain["routed_experts"])
        if plain["indexer_topk"] is not None:
            state.indexer_topk = ReplayArray(plain["indexer_topk"], field="indexer_topk")
        return state


def _error_to_plain(error: ServerError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "text": str(error),
        "message": error.message,
        "code": error.code,
        "type": error.type,
        "index": error.index,
    }


def _error_from_plain(plain: dict[str, Any] | None) -> ServerError | None:
    if plain is None:
        return None
    return ServerError(
        plain["text"], message=plain["message"], code=plain["code"], type=plain["type"], index=plain["index"]
    )
