"""slime's own view of a ``/generate`` stream: ``SGLangStreamAccumulator`` and ``SGLangStreamUpdate``, on our core.

Drop-ins for ``slime/rollout/streaming_utils.py`` (pull request 2272): same fields, same results on every stream that
both accept, same message fragments where a stream is refused.  What slime's own refuses and a server does send (an
abort snapshot among deltas, snapshots of rows beside deltas of ids) is merged.  Knows chunks and updates; nothing of
samples or requests, and needs neither slime nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args

from ssefold import Accumulator, PayloadError, ProtocolError

from .._call.tokens import CallTokens, StreamMode

_LENGTH = "output_token_logprobs_length"
_ROWS = "output_token_logprobs"
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class SGLangStreamUpdate:
    """What one chunk adds, with slime's field names.

    :ivar replace_call_state: go back to the sample as it was before the call; ``tokens`` are all of this call's.
    :ivar tokens: token ids that have a logprob, new or all.
    :ivar log_probs: one per token, None where the server sent null.
    :ivar meta_info: the chunk's ``meta_info``.
    """

    replace_call_state: bool
    tokens: list[int]
    log_probs: list[float | None]
    meta_info: dict[str, Any]


class SGLangStreamAccumulator:
    """Merge the chunks of one streamed ``/generate`` call, as slime's own accumulator does.

    :param output_mode: how the server was started (``"incremental"`` with ``--incremental-streaming-output``), checked
        against the stream; ``"auto"`` finds out.
    :param output_length: number of tokens of this call that were accumulated before.
    :param tokens: their ids.
    :param log_probs: their logprobs.
    :raises ValueError: an unknown ``output_mode``, an ``output_length`` that is no whole number from 0, or ``tokens``
        or ``log_probs`` that cannot be iterated or are more than ``output_length``.
    """

    def __init__(
        self,
        output_mode: StreamMode = "auto",
        output_length: int = 0,
        tokens: Iterable[int] = (),
        log_probs: Iterable[float | None] = (),
    ) -> None:
        if output_mode not in get_args(StreamMode):
            raise ValueError(f"output_mode must be 'auto', 'cumulative' or 'incremental', not {output_mode!r}")
        if type(output_length) is not int:
            raise ValueError(f"output_length must be an int, found {output_length!r:.80}")
        if output_length < 0:
            raise ValueError(f"output_length must not be negative, found {output_length}")
        tokens = _at_most(output_length, "tokens", tokens)
        log_probs = _at_most(output_length, "log_probs", log_probs)
        self._mode: StreamMode = output_mode
        self._call = CallTokens(output_mode, tokens, log_probs, known=output_length)
        self._core = Accumulator(output_mode)
        self._length = output_length
        self._seeded = output_length == 0

    @property
    def output_mode(self) -> StreamMode:
        """How the server was started, as given."""
        return self._mode

    @property
    def output_length(self) -> int:
        """Number of tokens so far."""
        return self._length

    @property
    def tokens(self) -> list[int]:
        """Token ids so far; the accumulator's own list."""
        return self._call.tokens

    @property
    def log_probs(self) -> list[float | None]:
        """One per token; the accumulator's own list."""
        return self._call.log_probs

    def add(self, chunk: Mapping[str, Any]) -> SGLangStreamUpdate:
        """Fold one parsed chunk and return what is new.  If it raises, it has changed nothing.

        :raises ValueError: lengths or mode do not fit (``ProtocolError``), a field is malformed (``PayloadError``), a
            top-p array is not what it says (``ReplayError``), or the server reports an error (``ServerError``).
        """
        if not isinstance(chunk, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PayloadError(f"a chunk must be a mapping, found {type(chunk).__name__}")
        found: Any = chunk.get("meta_info") or {}
        meta: dict[str, Any] = found if isinstance(found, dict) else {}
        if chunk.get("error") is None:
            check_length_given(meta)
        if not self._seeded:
            self._core.add(self._seed(meta))
            self._seeded = True
        try:
            update = self._core.add(chunk)
        except ProtocolError as error:
            raise self._in_slimes_words(error, meta) from error
        self._length = len(self._core.logprobs)
        tokens, log_probs = self._call.take(update)
        return SGLangStreamUpdate(update.replace, tokens, log_probs, meta)

    def response_text(self, decode: Callable[[list[int]], str]) -> str:
        """The text of the call.

        :param decode: token ids to text, called at most once, and only where the server sent no text.
        """
        return self._call.text(decode)

    def _seed(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk of the tokens accumulated before, as far as they were given; a snapshot repeats what was not."""
        length = self._length
        rows: Any = (meta.get(_ROWS) or []) if self._mode == "cumulative" else []
        if not isinstance(rows, (list, tuple)):
            raise PayloadError(f"meta_info.{_ROWS} must be a list, found {type(rows).__name__}")
        pairs: list[Any] = []
        for row in cast("Sequence[Any]", rows)[:length]:
            if not isinstance(row, (list, tuple)) or len(cast("Sequence[Any]", row)) < 2:
                raise PayloadError(f"meta_info.{_ROWS} must be rows of logprob and token id, found {row!r:.80}")
            pairs.append(list(cast("Sequence[Any]", row)[:2]))
        pairs += [[None, 0]] * (length - len(pairs))
        for at, token in enumerate(self.tokens[:length]):
            pairs[at] = [pairs[at][0], token]
        for at, log_prob in enumerate(self.log_probs[:length]):
            pairs[at] = [log_prob, pairs[at][1]]
        return {"meta_info": {_ROWS: [[*pair, None] for pair in pairs], _LENGTH: length}}

    def _in_slimes_words(self, error: ProtocolError, meta: Mapping[str, Any]) -> ProtocolError:
        rows: Any = meta.get(_ROWS) or []
        reported: Any = meta.get(_LENGTH)
        received, previous = len(rows) if isinstance(rows, Sequence) else 0, self._length
        if type(reported) is int and received == reported < previous and self._mode != "incremental":
            fault = f"output length decreased: previous={previous}, reported={reported}"
        else:
            expected = received + (previous if self._mode == "incremental" else 0)
            fault = (
                f"output has inconsistent {_LENGTH}: received={received}, previous={previous}, expected={expected},"
                f" reported={reported}"
            )
        mode = "cumulative" if self._mode == "auto" else self._mode
        return ProtocolError(f"SGLang {mode} streaming {fault}. {error}", partial=error.partial)

    def __repr__(self) -> str:
        return f"SGLangStreamAccumulator(output_mode={self._mode!r}, output_length={self._length})"


def _at_most(count: int, name: str, values: Iterable[_Item]) -> list[_Item]:
    try:
        found = list(values)
    except TypeError:
        raise ValueError(f"{name} must be a list, found {type(values).__name__}") from None
    if len(found) > count:
        raise ValueError(f"{name} has {len(found)} elements, more than output_length={count}")
    return found


def check_length_given(meta_info: Mapping[str, Any]) -> None:
    """Refuse a chunk without the counter that everything is checked against.

    An abort before the first token may come without (it has no rows to count).

    :raises ProtocolError: the counter is missing.
    """
    if _LENGTH in meta_info:
        return
    reason: Any = meta_info.get("finish_reason")
    if isinstance(reason, Mapping) and cast("Mapping[str, Any]", reason).get("type") == "abort":
        return
    raise ProtocolError(
        f"SGLang streaming responses must include {_LENGTH}. SGLang sends it with return_logprob from 0.5.10 on: use a"
        " newer server, or look for a gateway that drops it (the gRPC gateway and the Rust server do)"
    )


def flag_of(args: Any) -> StreamMode:
    """``args.sglang_incremental_streaming_output`` as a mode; ``"auto"`` where there is no such argument."""
    flag = getattr(args, "sglang_incremental_streaming_output", None)
    return "auto" if flag is None else "incremental" if flag else "cumulative"
