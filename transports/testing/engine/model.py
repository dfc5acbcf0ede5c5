"""What a fake server generates: a model is any function from what was asked to the script of the answer.

:class:`GreedyModel` makes its tokens from a hash of the whole context, so a prompt that ends in a part of an earlier
answer is answered with the rest of it, and one wrong token anywhere changes every token after it.
:class:`ScriptedModel` plays scripts that were written beforehand.  Neither knows when or how the answer is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from ..script import Alternatives, Finish, Routing, Script
from ..trim import head, tail
from .asked import Asked

Model: TypeAlias = Callable[[Asked], Script]
"""Answers one output of a request, whole; the server decides how much of it is ever decoded."""

EOS = 2
_LEAD, _REST = 3, 4
_PIECES: dict[int, bytes] = {0: b"", 1: b"", EOS: b"", _LEAD: b"\xf0\x9f", _REST: b"\x98\x80"}
_WORDS = (
    " the", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs", ".", ",", " 1", "7", "\n", " caf\u00e9",
    " \u65e5\u672c", "\u8a9e", " \u0440\u0443\u0441", "\u2028", "\u0085", ' "q"', " \\", " data:", " [DONE]", "\t",
)  # fmt: skip
_VOCABULARY = 512
_MASK = 2**64 - 1


class GreedyModel:
    """Deterministic tokens, logprobs, alternatives, top-p rows and routing, for any prompt.

    :param seed: another seed is another model.
    :param stop_every: on average one token in so many is the stop token (id 2); 0: answers end at ``max_new_tokens``.
    :param num_layers: of ``routed_experts``, with ``top_k`` experts of 16 a layer.

    A sample other than a prompt's first has tokens of its own, which no later request can resume.
    """

    def __init__(self, seed: int = 0, *, stop_every: int = 0, num_layers: int = 2, top_k: int = 4) -> None:
        self._seed = seed
        self._stop_every = stop_every
        self._num_layers = num_layers
        self._top_k = top_k

    # Equal models share what they have answered.

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self._seed))

    def __call__(self, asked: Asked) -> Script:
        """The whole answer, up to ``max_new_tokens`` or the stop token."""
        if asked.return_routed_experts and (reason := _bad_start(asked)):
            # The scheduler goes on with the prompt [0]: one row of routing.
            return replace(rejected(asked, reason), routed_experts=self._routing((0,), 0))
        return replace(_answer(self, replace(asked, rid="")), rid=asked.rid)

    def write(self, asked: Asked) -> Script:
        """The answer, made anew."""
        ids, states = self._generate(asked)
        stopped = ids and ids[-1] == EOS
        prompt = asked.prompt_ids
        return Script(
            token_ids=tuple(ids),
            pieces=tuple(map(piece, ids)),
            finish=Finish.stop(EOS) if stopped else Finish.length(asked.max_new_tokens),
            rid=asked.rid,
            prompt_ids=prompt,
            return_prompt_token_ids=asked.return_prompt_token_ids,
            logprobs=tuple(map(_logprob, states)) if asked.return_logprob else None,
            top_logprobs=self._tops(states, ids, asked),
            text_in_logprobs=asked.text_in_logprobs,
            top_p_rows=tuple(map(_kept, states, ids)) if asked.return_top_p else (),
            routed_experts=self._routing((*prompt, *ids)[:-1], asked.routed_experts_start_len)
            if asked.return_routed_experts
            else None,
        )

    def _generate(self, asked: Asked) -> tuple[list[int], list[int]]:
        """Token ids, and the state that each came from."""
        state = self._state(asked.prompt_ids, asked.sample)
        previous = asked.prompt_ids[-1] if asked.prompt_ids else 0
        ids: list[int] = []
        states: list[int] = []
        while len(ids) < asked.max_new_tokens:
            token = self._token(state, previous, may_stop=not asked.ignore_eos)
            states.append(state)
            ids.append(token)
            if token == EOS:
                break
            state, previous = _step(state, token), token
        return ids, states

    def _state(self, ids: Iterable[int], sample: int) -> int:
        state = _step(self._seed, sample)
        for token in ids:
            state = _step(state, token)
        return state

    def _token(self, state: int, previous: int, *, may_stop: bool) -> int:
        if previous == _LEAD:
            return _REST  # the other half of a character
        if may_stop and self._stop_every and (state >> 24) % self._stop_every == 0:
            return EOS
        token = 5 + (state >> 8) % (_VOCABULARY - 5)
        return _LEAD if token % 16 == 0 else token

    def _tops(self, states: Sequence[int], ids: Sequence[int], asked: Asked) -> tuple[Alternatives, ...] | None:
        if not asked.return_logprob or not asked.top_logprobs_num:
            return None
        return tuple(
            tuple(((_logprob(state) or -9.5) - 0.625 * rank, token + rank) for rank in range(asked.top_logprobs_num))
            for state, token in zip(states, ids, strict=True)
        )

    def _routing(self, fed: Sequence[int], start_len: int) -> Routing:
        width = self._num_layers * self._top_k
        rows = tuple(
            tuple((token + 3 * position + 5 * column) % 16 for column in range(width))
            for position, token in enumerate(fed)
        )
        return Routing(rows, self._num_layers, self._top_k, start_len)


class ScriptedModel:
    """Plays given scripts; a request that repeats the start of one goes on from there.

    The script is the one whose prompt and tokens begin with the request's prompt, the longest match first; a request
    that matches none gets the scripts in turn.  What the request does not ask for is left out.
    """

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("ScriptedModel needs at least one script")
        self._scripts = scripts
        self._turn = 0

    def __call__(self, asked: Asked) -> Script:
        """The script, or what is left of it, as this request may see it."""
        script = self._matching(asked.prompt_ids)
        if script is None:
            script = replace(self._scripts[self._turn % len(self._scripts)], prompt_ids=asked.prompt_ids)
            self._turn += 1
        if len(script.token_ids) > asked.max_new_tokens:
            script = head(script, asked.max_new_tokens, Finish.length(asked.max_new_tokens))
        routing = script.routed_experts
        return replace(
            script,
            rid=asked.rid,
            return_prompt_token_ids=asked.return_prompt_token_ids,
            logprobs=script.logprobs if asked.return_logprob else None,
            top_logprobs=script.top_logprobs if asked.return_logprob and asked.top_logprobs_num else None,
            top_p_rows=script.top_p_rows if asked.return_top_p else (),
            routed_experts=replace(routing, start_len=asked.routed_experts_start_len)
            if routing is not None and asked.return_routed_experts
            else None,
        )

    def _matching(self, prompt: tuple[int, ...]) -> Script | None:
        for script in self._scripts:
            whole = script.prompt_ids + script.token_ids
            given = len(prompt) - len(script.prompt_ids)
            if given >= 0 and prompt == whole[: len(prompt)] and given < max(len(script.token_ids), 1):
                return tail(script, given)
        return None


@lru_cache(maxsize=64)
def _answer(model: GreedyModel, asked: Asked) -> Script:
    """What equal models answer: tests ask the same again and again, mostly of a new server each time."""
    return model.write(asked)


def _bad_start(asked: Asked) -> str | None:
    """What the scheduler has against ``routed_experts_start_len`` (``scheduler.handle_generate_request``)."""
    start, prompt = asked.routed_experts_start_len, len(asked.prompt_ids)
    if start < 0:
        return (
            f"recv_req.routed_experts_start_len={start} is lower than 0. "
            "Please use a non-negative routed_experts_start_len."
        )
    if start > prompt:
        return (
            f"recv_req.routed_experts_start_len={start} is higher than the number of input tokens "
            f"len(req.origin_input_ids)={prompt}. Please use a smaller routed_experts_start_len."
        )
    return None


def rejected(asked: Asked, message: str) -> Script:
    """The answer to a request that the scheduler's validation refuses: one junk token and an abort."""
    return Script(
        token_ids=(5,),
        pieces=(piece(5),),
        finish=Finish.rejected(message),
        rid=asked.rid,
        prompt_ids=asked.prompt_ids,
        logprobs=(None,) if asked.return_logprob else None,
    )


def piece(token: int) -> bytes:
    """The bytes that this token of a :class:`GreedyModel` decodes to."""
    known = _PIECES.get(token)
    return _WORDS[token % len(_WORDS)].encode() if known is None else known


def _step(state: int, token: int) -> int:
    state = (state * 6364136223846793005 + token * 1442695040888963407 + 1442695040888963407) & _MASK
    state ^= state >> 31
    return (state * 0x9E3779B97F4A7C15) & _MASK


def _logprob(state: int) -> float | None:
    value = (state >> 16) % 9973
    # Servers write a logprob of minus infinity as null.
    return None if value == 7 else -value / 1024


def _kept(state: int, token: int) -> tuple[int, ...]:
    kept = tuple((token + 7 * rank) % _VOCABULARY for rank in range(1 + (state >> 40) % 4))
    # The sampled id may be missing from its own row.
    return kept if (state >> 44) % 11 else kept[1:] or ((token + 1) % _VOCABULARY,)
