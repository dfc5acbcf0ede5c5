"""The same few generations as every server writes them: small bodies by the hundred, made without chance.

Hypothesis looks everywhere a little (``tests/truth/strategies.py``); this looks at every profile each time.  Knows the
encoder; no decoder is involved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice

from ssefold.transports.testing import (
    PROFILES,
    Body,
    Finish,
    Profile,
    Routing,
    Script,
    choose,
    eager,
    encode,
    interval_sends,
    late,
)

_WORDS = (
    b"Hel",
    b"lo",
    b" ",
    b'"',
    b"\\",
    b"\n",
    b"\xf0\x9f",
    b"\x98\x80",
    "\u2028".encode(),
    b"\x00",
    "文".encode(),
    b"a",
)
_PROMPT = (11, 12, 13, 14, 15, 16, 17)


@dataclass(frozen=True)
class Case:
    """One body with what made it."""

    name: str
    profile: Profile
    scripts: tuple[Script, ...]
    body: Body


def plain(tokens: int, *, first: int = 101, rid: str = "r1", finish: Finish | None = None) -> Script:
    """Tokens with texts of every kind, and no logprobs."""
    return Script(
        token_ids=tuple(first + at % 50 for at in range(tokens)),
        pieces=tuple(islice(cycle(_WORDS), tokens)),
        finish=Finish.length(tokens) if finish is None else finish,
        rid=rid,
        prompt_ids=_PROMPT,
        cached_tokens=4,
        reasoning_tokens=2,
    )


def scored(tokens: int, *, first: int = 101, rid: str = "r1", finish: Finish | None = None) -> Script:
    """The same with logprobs, some of them null, zero and minus zero."""
    script = plain(tokens, first=first, rid=rid, finish=finish)
    values = (-0.11968021094799042, -0.0, None, -1e-07, 0.0, -13.5, float("nan"), -1.1920928955078125e-07)
    return replace(script, logprobs=tuple(islice(cycle(values), tokens)))


def finite(tokens: int) -> Script:
    """Nothing but ordinary numbers: what runs of events are folded at once from."""
    return replace(scored(tokens), logprobs=tuple(-0.125 - at / 7 for at in range(tokens)))


def rich(tokens: int) -> Script:
    """Everything that a request can ask about its tokens."""
    script = scored(tokens)
    pairs = tuple(((-0.5, at), (None if at % 3 else -2.25, at + 1)) for at in range(tokens))
    fed = len(_PROMPT) + tokens - 1
    return replace(
        script,
        text_in_logprobs=True,
        top_logprobs=pairs,
        ids_logprobs=pairs[::-1],
        input_logprobs=tuple((None if at == 0 else -0.25 * at, token_id) for at, token_id in enumerate(_PROMPT)),
        input_top_logprobs=(None, *pairs[:6]),
        return_prompt_token_ids=True,
        sampling_mask=tuple(tuple(range(at, at + at % 3 + 1)) for at in range(tokens)),
        sampling_logprobs=tuple(-0.5 * at for at in range(tokens)),
        custom={"confidence": tuple(at if at % 2 else f"c{at}" for at in range(tokens))},
        top_p_rows=tuple(tuple(range(at, at + at % 3 + 1)) for at in range(tokens)),
        routed_experts=Routing(tuple((at % 7, 1, 2, -1) for at in range(fed)), 2, 2),
        indexer_topk=Routing(tuple((at, at + 1) for at in range(fed)), 1, 2),
        hidden_states=tuple([0.25, float(at)] for at in range(tokens)),
    )


def profiles() -> list[Profile]:
    """Every server behaviour that was ever released."""
    return list(PROFILES.values())


@cache
def cases(profile: Profile) -> tuple[Case, ...]:
    """The generations as this server writes them."""
    return tuple(Case(name, profile, scripts, body) for name, scripts, body in _bodies(profile))


def _bodies(profile: Profile) -> Iterator[tuple[str, tuple[Script, ...], Body]]:
    def one(
        name: str, script: Script, sends: tuple[int, ...], *, slow: bool = False
    ) -> tuple[str, tuple[Script], Body]:
        aborts = (0,) if script.finish.how == "queued" else ()
        schedule = late([sends], aborts, after=len(sends) // 2) if slow else eager([sends], aborts)
        return name, (script,), encode(script, profile, schedule)

    yield one("plain", plain(13), (1,) * 13)
    yield one("scored", scored(24), (1,) * 24)
    yield one("finite", finite(28), (1,) * 28)
    yield one("prompted", _prompted(scored(24)), (1,) * 24)
    yield one("intervals", scored(40), interval_sends(40, 8))
    yield one("rich", _askable(rich(9), profile), (1, 1, 2, 0, 1, 3, 1))
    yield one("slow", scored(12), (1,) * 12, slow=True)
    yield one("slow-plain", plain(12), (1,) * 12, slow=True)
    yield one("stop", scored(6, finish=Finish.stop(106)), (1, 1, 1, 3))
    yield one("aborted", scored(6, finish=Finish.aborted()), (1, 1, 1, 3, 0))
    yield one("unfinished", scored(6, finish=Finish.unfinished()), (1,) * 6)
    if profile.version >= (0, 4, 9):
        yield one("queued", scored(6, finish=Finish.queue_abort()), (1,) * 6)
        yield one("glued", scored(6, finish=Finish.queue_abort()), (1,) * 6, slow=True)
        yield one("shed", replace(plain(0), finish=Finish.overloaded()), ())
    if not profile.aborts_raise:
        yield one("rejected", replace(plain(1), finish=Finish.rejected("too long")), (1,))
    if profile.family == "http_pd":
        # The gateway could not rewrite these events: the prompt's rows are not in them.
        body = encode(_prompted(scored(24)), profile, passed_through=(3, 4, 9, 18, 23))
        yield "passed-through", (_prompted(scored(24)),), body
    if profile.family != "dynamo":
        scripts = (scored(14, rid="a_0"), plain(9, first=301, rid="b_1"), scored(11, first=401, rid="c_2"))
        for seed in (1, 2):
            chosen = random.Random(seed).choices(range(4), k=200)
            # Without logprobs a slow reader of an old server loses ids for good.
            schedule = choose([(1,) * 14, (1, 2) * 3, (1,) * 11], [] if profile.loses_ids else chosen)
            yield f"batch-{seed}", scripts, encode(scripts, profile, schedule)


def _prompted(script: Script) -> Script:
    """A long prompt whose logprobs are repeated in every chunk."""
    prompt = tuple(range(901, 931))
    rows = tuple((None if at == 0 else -0.25 * at, token_id) for at, token_id in enumerate(prompt))
    return replace(script, prompt_ids=prompt, input_logprobs=rows)


def _askable(script: Script, profile: Profile) -> Script:
    """Without the custom list where the server sends a part of it only now and then."""
    return script if profile.custom in ("list", "snapshot") else replace(script, custom={})
