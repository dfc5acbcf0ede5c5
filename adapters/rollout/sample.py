"""A rollout as data: one prompt, one growing response, and everything a trainer wants to know about each token.

The adapters of slime and miles do the same with the samples of those frameworks.  Knows updates and nothing of bytes,
clients or servers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, ClassVar, Literal

from ssefold import FinishReason, ReplayRows, TopPReplay, Update
from ssefold.views import Floats, Ints, freeze

from .apply import apply_update, check_leftovers
from .arrays import RolloutArrays, arrays_of
from .call import Call, WeightSpan, merged
from .codec import decode, encode
from .errors import RolloutError
from .request import budget, grammar_of, own_params, own_shape, payload_of
from .state import State

#: ``pending``: no token yet; ``partial``: some, and more may come; ``aborted``: the server stopped it, to be resumed;
#: ``completed``, ``truncated`` (the budget is used up) and ``failed`` (the server refused it) are the end.
Status = Literal["pending", "partial", "aborted", "completed", "truncated", "failed"]


class RolloutSample:
    """One prompt and its response, over as many ``/generate`` calls as it takes.

    A call that is aborted, cut or lost is resumed where it stopped, on any server::

        sample = RolloutSample(prompt_ids, sampling_params={"max_new_tokens": 512})
        while not sample.done:
            async with generate(client, url, sample.next_payload()) as stream:
                async for update in stream:
                    sample.apply(update)

    :func:`ssefold.adapters.rollout.run` is that loop over several servers.

    Several turns: ``sample.extend(tool_ids)`` after the model's turn, then ``next_payload()`` again.  A partial sample
    travels as ``to_bytes()``, or as a pickle, and is resumed elsewhere.

    The token ids are the truth.  ``text`` is what the servers sent, call by call: where a call was cut in the middle of
    a character, the text lacks what the server still held back.

    :param prompt_ids: the prompt's token ids.
    :param sampling_params: as for SGLang, and copied.  ``max_new_tokens`` bounds the whole response, tool tokens
        included, as in slime; absent it is 128, SGLang's default; None is no limit.
    :param num_layers: with ``top_k``: ask for routed experts (see :meth:`ssefold.ReplayArray.reshape`).
    :param top_k: experts per token.
    :raises RolloutError: an argument is none of these.
    """

    __slots__ = ("_state",)

    def __init__(
        self,
        prompt_ids: Sequence[int],
        *,
        sampling_params: Mapping[str, Any] | None = None,
        num_layers: int | None = None,
        top_k: int | None = None,
    ) -> None:
        ids, shape = _ids("prompt_ids", prompt_ids), own_shape(num_layers, top_k)
        self._state = State(ids, own_params(sampling_params), shape)

    # ---- what is there

    @property
    def prompt_ids(self) -> Sequence[int]:
        """Token ids of the prompt."""
        return Ints(self._state.prompt_ids)

    @property
    def token_ids(self) -> Sequence[int]:
        """Token ids of the response, tool tokens included: a live, read-only view; slices are tuples."""
        return Ints(self._state.token_ids)

    @property
    def logprobs(self) -> Sequence[float | None]:
        """One per response token: 0.0 for tool tokens, None where the server sent null.  Empty if none were sent."""
        return Floats(self._state.scores)

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """One per response token: 1 if it was sampled, 0 if :meth:`extend` gave it."""
        return tuple(self._state.mask)

    @property
    def text(self) -> str:
        """Text of the response: what the servers sent, and what was given to :meth:`extend`."""
        return self._state.text.value()

    @property
    def top_p(self) -> TopPReplay | None:
        """Top-p rows, one per response token once the call that sampled it has ended; None if none came."""
        return self._state.top_p.value(self._state.mask)

    @property
    def routed_experts(self) -> ReplayRows | None:
        """Routing from the first prompt token on, as of the last call that ended; None if none came."""
        return self._state.routed

    @property
    def weight_versions(self) -> tuple[WeightSpan, ...]:
        """Which weights sampled which response tokens, as far as the servers said."""
        return tuple(merged(self._state.spans))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls so far, the running one last."""
        return self._state.all_calls()

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the last call ended; None while it runs, if it was cut, and after :meth:`extend`."""
        return self._state.finish

    @property
    def sampling_params(self) -> Mapping[str, Any]:
        """The parameters as given, read-only."""
        view: Mapping[str, Any] = freeze(self._state.params)
        return view

    @property
    def budget_left(self) -> int | None:
        """Tokens the response may still grow by; None for no limit."""
        return budget(self._state.params, len(self._state.token_ids))

    @property
    def status(self) -> Status:
        """The state of the sample; see :data:`Status`."""
        finish = self._state.finish
        if finish is not None and finish.is_failure and not finish.retryable:
            return "failed"
        if finish is not None and finish.type not in ("abort", "length"):
            return "completed"
        if self.budget_left == 0 or (finish is not None and finish.type == "length"):
            return "truncated"
        if finish is not None:
            return "aborted"
        return "partial" if self._state.token_ids else "pending"

    @property
    def done(self) -> bool:
        """True when there is nothing to resume: completed, truncated or failed."""
        return self.status in ("completed", "truncated", "failed")

    # ---- what changes it

    def begin_call(self, *, rid: str | None = None, source: str | None = None, routed_from: int = 0) -> None:
        """Begin a new call: the next updates are appended to the tokens so far.

        :meth:`next_payload` does this; call it yourself only with a request that you made yourself.

        :param routed_from: the request's ``routed_experts_start_len``.
        :raises RolloutError: an argument is of the wrong type, or the call before left tokens that could never be
            trained on (see :meth:`rollback`).
        """
        for name, value in (("rid", rid), ("source", source)):
            if not isinstance(value, (str, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise RolloutError(f"{name} must be a string or None, found {type(value).__name__}")
        if type(routed_from) is not int or routed_from < 0:
            raise RolloutError(
                f"routed_from must be the request's routed_experts_start_len, a whole number from 0, found"
                f" {routed_from!r:.80}"
            )
        check_leftovers(self._state)
        self._state.open_call(rid, source, routed_from, scores_due=False)

    def next_payload(self, *, source: str | None = None) -> dict[str, Any]:
        """Begin a new call and return its ``POST /generate`` body: prompt and tokens so far, and the budget left.

        Everything in it is the caller's own; ``rid`` is new each time.

        :param source: name of the server that is asked, kept in :attr:`calls`.
        :raises RolloutError: the sample is done, or what the last call left cannot be resumed (see
            :meth:`rollback`).
        """
        state = self._state
        used = len(state.token_ids)
        if self.done:
            raise RolloutError(
                f"the sample is {self.status} ({used} tokens, budget left {self.budget_left}, finish_reason"
                f" {state.finish!r}): extend() it with the next turn's tokens first, or raise max_new_tokens"
            )
        grammar = grammar_of(state.params)
        if grammar is not None and state.given:
            raise RolloutError(
                f"sampling_params.{grammar} cannot be resumed in the middle of an output: the server would start"
                " the grammar anew. rollback() and sample the turn again"
            )
        check_leftovers(state)
        routed_from = None if state.shape is None else (0 if state.routed is None else state.routed.rows)
        payload = payload_of([*state.prompt_ids, *state.token_ids], state.params, used, routed_from=routed_from)
        state.open_call(payload["rid"], source, routed_from or 0, scores_due=True)
        return payload

    def apply(self, update: Update) -> None:
        """Add one update.  If it raises, it has changed nothing.

        :raises ssefold.ProtocolError: the update does not start where this call ends, is of another output, or its
            lengths or logprobs do not fit.
        :raises ssefold.ReplayError: a replay array does not fit the tokens, or one that :meth:`next_payload` asked for
            is missing where the call ends normally.
        :raises RolloutError: it is no update.
        """
        if not isinstance(update, Update):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RolloutError(f"apply() takes an ssefold.Update, found {type(update).__name__}")
        apply_update(self._state, update)

    def extend(self, token_ids: Sequence[int], text: str = "") -> None:
        """Append tokens that were not sampled (a tool's answer, the user's turn): loss mask 0, empty top-p rows.

        This ends the model's turn; :meth:`next_payload` begins the next one.

        :raises RolloutError: the server refused the sample, a token id is none, the text is none, or the turn's tokens
            could never be trained on (see :meth:`rollback`).  Nothing is changed then.
        """
        state = self._state
        ids = _ids("token_ids", token_ids)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RolloutError(f"text must be a string, found {type(text).__name__}")
        if self.status == "failed":
            raise RolloutError(f"the sample has failed ({state.finish!r}): there is nothing to resume")
        check_leftovers(state)
        state.extend(ids, text)

    def rollback(self) -> None:
        """Drop everything that the last call gave, as if it had not been made.

        For tokens that cannot be trained on: of a call that was cut before its top-p rows came (they come with the
        terminal chunk; have the server abort instead of closing the connection), that ended without them, or without
        logprobs.
        """
        self._state.rollback()

    # ---- how it travels

    def arrays(self) -> RolloutArrays:
        """Copies of all arrays, for NumPy, torch, or anything else that reads buffers."""
        return arrays_of(self._state)

    def to_bytes(self) -> bytes:
        """Versioned and checksummed bytes, a running call included; no pickle inside, safe to load from anywhere."""
        return encode(self._state)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RolloutSample:
        """The inverse of :meth:`to_bytes`.

        :raises ssefold.SnapshotError: truncated, altered, of a newer version, or no sample of ours.
        """
        sample = cls.__new__(cls)
        sample._state = decode(data)
        return sample

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RolloutSample):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    # It grows.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __reduce__(self) -> tuple[Any, ...]:
        return RolloutSample.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        state = self._state
        return f"RolloutSample({len(state.prompt_ids)} + {len(state.token_ids)} tokens, {self.status})"


def _ids(name: str, values: Sequence[int]) -> array[int]:
    try:
        ids = array("q", map(index, values))
    except (TypeError, OverflowError):
        raise RolloutError(f"{name} must be token ids, whole numbers from 0, found {values!r:.80}") from None
    if ids and min(ids) < 0:
        raise RolloutError(f"{name} must be token ids, whole numbers from 0, found {min(ids)}")
    return ids
