"""What a server generates: the truth that every stream of it must fold back to.

A :class:`Script` is one output (one prompt, one sample): its tokens with all that a request can ask for about them, and
how it ends.  It knows nothing of versions, modes, chunks or bytes: :mod:`~ssefold.transports.testing.profiles` says how
a server writes it down.  Per-token sequences have one entry per token id unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Alternatives: TypeAlias = "tuple[tuple[float | None, int], ...] | None"
"""The (logprob, token id) pairs of one position; None where the server has no data (``null`` on the wire)."""

EndKind = Literal["finished", "queued", "rejected", "unfinished"]


@dataclass(frozen=True)
class Finish:
    """How an output ends.

    ``how`` is the way through the server, ``reason`` the JSON of ``meta_info.finish_reason`` (``schedule_batch.py``,
    ``FINISH_*.to_json``; ``tokenizer_manager._handle_abort_req``):

    ``finished``
        The scheduler's last output carries the reason: stop, length, or abort while running.
    ``queued``
        Aborted while waiting or retracted: the chunk is made by ``_handle_abort_req``.  ``reason`` None is a plain
        abort, whose message depends on the version.
    ``rejected``
        The scheduler's validation failed (``set_finish_with_abort``): one junk token, ``prompt_tokens`` 1.
    ``unfinished``
        The server dies before: no terminal chunk.
    """

    how: EndKind
    reason: Mapping[str, Any] | None = None

    @classmethod
    def stop(cls, matched: int | str | Sequence[int]) -> Finish:
        """A stop token (id) or a stop string or regular expression (text) was hit."""
        return cls(
            "finished", {"type": "stop", "matched": matched if isinstance(matched, int | str) else list(matched)}
        )

    @classmethod
    def length(cls, max_new_tokens: int) -> Finish:
        """``max_new_tokens`` were generated."""
        return cls("finished", {"type": "length", "length": max_new_tokens})

    @classmethod
    def nan(cls) -> Finish:
        """The sampler produced an id outside the vocabulary (``_check_vocab_boundary_finish``): a failure."""
        return cls.stop("NaN happened")

    @classmethod
    def aborted(
        cls, message: str = "Aborted", *, status_code: int | None = None, err_type: str | None = None
    ) -> Finish:
        """Aborted while running, by ``/abort_request`` or by the scheduler (then with a status code)."""
        return cls("finished", {"type": "abort", "message": message, "status_code": status_code, "err_type": err_type})

    @classmethod
    def queue_abort(cls) -> Finish:
        """``/abort_request`` met it in the waiting queue, before its first token or after a retraction."""
        return cls("queued")

    @classmethod
    def overloaded(cls, message: str = "The request queue is full.", *, status_code: int = 503) -> Finish:
        """Shed: queue full, waiting timeout, priority eviction.  Retryable."""
        return cls("queued", {"type": "abort", "status_code": status_code, "message": message})

    @classmethod
    def rejected(cls, message: str, *, status_code: int = 400, err_type: str = "BadRequestError") -> Finish:
        """The scheduler refuses the request; it answers with one junk token that is not part of any truth."""
        return cls("rejected", {"type": "abort", "message": message, "status_code": status_code, "err_type": err_type})

    @classmethod
    def unfinished(cls) -> Finish:
        """No terminal chunk ever comes."""
        return cls("unfinished")

    @property
    def abort_status(self) -> int | None:
        """The HTTP-like status of an abort; None for everything else."""
        reason = self.reason or {}
        status = reason.get("status_code") if reason.get("type") == "abort" else None
        return status if isinstance(status, int) else None


@dataclass(frozen=True)
class Routing:
    """``routed_experts`` or ``indexer_topk``: one row per fed position, C order, int32.

    :ivar rows: ``prompt_tokens + len(token_ids) - 1`` rows of ``num_layers * top_k`` values (the last token is never
        fed), whatever ``start_len`` is.
    :ivar start_len: the request's ``routed_experts_start_len``; servers that honour it send ``rows[start_len:]``.
    """

    rows: tuple[tuple[int, ...], ...]
    num_layers: int
    top_k: int
    start_len: int = 0


@dataclass(frozen=True)
class Span:
    """A ``weight_versions`` span: output tokens ``[start, end)`` came from these weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Script:
    """One output of one request, and what the request asked to get about it.

    :ivar token_ids: every generated token, including the stop token and what follows a stop string.
    :ivar pieces: the bytes that each token decodes to (UTF-8, possibly a part of a character).
    :ivar logprobs: None when ``return_logprob`` was not asked for; an entry of None or not finite is ``null``.
    :ivar extra_rows: (logprob, id) rows beyond the ids: the one row of ``max_new_tokens=0``, or what speculative
        decoding leaves over (not cut before 0.5.10).
    :ivar top_logprobs: ``top_logprobs_num`` > 0; ``input_top_logprobs`` then start with None.
    :ivar ids_logprobs: ``token_ids_logprob`` was set.
    :ivar input_logprobs: (logprob, id) from ``logprob_start_len`` on; the first logprob is None.
    :ivar text_in_logprobs: ``return_text_in_logprobs``.
    :ivar vocabulary: texts of ids that are not generated here, for ``text_in_logprobs``; ``?`` for the rest.
    :ivar sampling_mask: kept ids per token (``return_sampling_mask``), with ``sampling_logprobs`` per token (a float,
        or one per kept id).
    :ivar custom: ``customized_info``: per key one value per token.
    :ivar hidden_states: per token, the first one being the prompt's rows; with ``hidden_last`` only the newest is sent.
    :ivar top_p_rows: slime's patch: kept ids per row; a row of None is skipped by the server.
    :ivar weight_version: in chunks before the last; None: the version of the newest token's span.
    :ivar reasoning_tokens: how many of the first tokens are reasoning.
    :ivar meta: further keys of every chunk (``--enable-metrics``); ``terminal_meta``: of the last one (speculative
        decoding).
    :ivar modal_tokens: ``image_tokens`` and its like.
    :ivar no_stop_trim: ``sampling_params.no_stop_trim``.
    """

    token_ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    finish: Finish
    rid: str = "r1"
    prompt_ids: tuple[int, ...] = (11, 12, 13, 14, 15, 16, 17)
    return_prompt_token_ids: bool = False
    logprobs: tuple[float | None, ...] | None = None
    extra_rows: tuple[tuple[float | None, int], ...] = ()
    top_logprobs: tuple[Alternatives, ...] | None = None
    ids_logprobs: tuple[Alternatives, ...] | None = None
    input_logprobs: tuple[tuple[float | None, int], ...] = ()
    input_top_logprobs: tuple[Alternatives, ...] = ()
    input_ids_logprobs: tuple[Alternatives, ...] = ()
    text_in_logprobs: bool = False
    vocabulary: Mapping[int, str] = field(default_factory=dict[int, str])
    sampling_mask: tuple[tuple[int, ...], ...] | None = None
    sampling_logprobs: tuple[float | tuple[float, ...], ...] = ()
    custom: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, "tuple[Any, ...]"])
    hidden_states: tuple[Any, ...] | None = None
    hidden_last: bool = False
    top_p_rows: tuple[tuple[int, ...] | None, ...] = ()
    routed_experts: Routing | None = None
    indexer_topk: Routing | None = None
    weight_spans: tuple[Span, ...] = ()
    weight_version: str | None = None
    cached_tokens: int = 0
    cached_tokens_details: Mapping[str, Any] | None = None
    reasoning_tokens: int = 0
    retractions: int = 0
    dp_rank: int | None = None
    modal_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    terminal_meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    e2e_latency: float = 0.5
    sent_ts: float = 1700000000.25
    no_stop_trim: bool = False

    def __post_init__(self) -> None:
        n = len(self.token_ids)
        per_token: dict[str, Sequence[object] | None] = {
            "pieces": self.pieces,
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs,
            "ids_logprobs": self.ids_logprobs,
            "sampling_mask": self.sampling_mask,
            "hidden_states": self.hidden_states,
        }
        per_token.update({f"custom[{key!r}]": values for key, values in self.custom.items()})
        for name, values in per_token.items():
            if values is not None and len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries for {n} token ids")
        if self.sampling_mask is not None and len(self.sampling_logprobs) != n:
            raise ValueError(f"sampling_logprobs has {len(self.sampling_logprobs)} entries for {n} token ids")

    @property
    def spans(self) -> tuple[Span, ...]:
        """``weight_spans``, or the one span of a server whose weights never changed."""
        return self.weight_spans or (Span(self.weight_version or "default", 0, len(self.token_ids)),)

    def version_at(self, tokens: int) -> str:
        """The server's ``weight_version`` when this many tokens were out."""
        if self.weight_version is not None:
            return self.weight_version
        newest = max(tokens - 1, 0)
        return next((span.version for span in self.spans if span.start <= newest < span.end), self.spans[-1].version)

    def text_of(self, token_id: int, position: int | None = None) -> str:
        """What a token decodes to alone; ``position`` says which of the generated ones it is."""
        if position is None:
            if token_id not in self.token_ids:
                return self.vocabulary.get(token_id, "?")
            position = self.token_ids.index(token_id)
        return self.pieces[position].decode("utf-8", "replace")
