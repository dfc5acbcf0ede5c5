"""The streams that are damaged: small, of every profile, with and without logprobs, one token and several a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ssefold.transports.testing import Body, Finish, Profile, Script, eager, encode

_PIECES = ("The", " cat", " sat", " on", " on", ".")
_OTHER = (" A", " dog", " ran", " by", " by", "!")


@dataclass(frozen=True, eq=False)
class Stream:
    """A body, what it says, and the body of another request to the same server."""

    name: str
    profile: Profile
    scripts: tuple[Script, ...]
    body: Body
    other: Body


def streams(profile: Profile) -> Iterator[Stream]:
    """Each form in which this server sends a few tokens."""
    for scored in (False, True):
        for interval in (1, 2):
            for batch in (False, True):
                if batch and profile.family == "dynamo":
                    continue
                name = f"{'scored' if scored else 'plain'}, {interval} a chunk{', a batch' if batch else ''}"
                mine = _scripts(_PIECES, 101, "a", scored=scored, batch=batch)
                others = _scripts(_OTHER, 501, "b", scored=scored, batch=batch)
                yield Stream(name, profile, mine, _body(mine, profile, interval), _body(others, profile, interval))


def _body(scripts: tuple[Script, ...], profile: Profile, interval: int) -> Body:
    sends = [(1, *[interval] * (len(script.token_ids) // interval)) for script in scripts]
    sends = [_fit(send, len(script.token_ids)) for send, script in zip(sends, scripts, strict=True)]
    return encode(scripts, profile, eager(sends))


def _fit(sends: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    fitted: list[int] = []
    for send in sends:
        if tokens:
            fitted.append(min(send, tokens))
            tokens -= fitted[-1]
    return tuple(fitted)


def _scripts(pieces: tuple[str, ...], first: int, rid: str, *, scored: bool, batch: bool) -> tuple[Script, ...]:
    # " on" twice is one id twice: what repeats itself is easiest to get wrong.
    one = Script(
        token_ids=tuple(first + pieces.index(piece) for piece in pieces),
        pieces=tuple(map(str.encode, pieces)),
        finish=Finish.length(len(pieces)),
        rid=f"{rid}1",
        prompt_ids=tuple(range(11, 18 if rid == "a" else 15)),
        logprobs=tuple(-0.125 * (at + 1) - first / 1000 for at in range(len(pieces))) if scored else None,
    )
    if not batch:
        return (one,)
    second = replace(
        one,
        token_ids=tuple(token + 20 for token in one.token_ids[:3]),
        pieces=tuple(piece.upper() for piece in one.pieces[:3]),
        logprobs=None if one.logprobs is None else tuple((value or 0.0) - 3 for value in one.logprobs[:3]),
        finish=Finish.length(3),
        rid=f"{rid}2",
    )
    return (one, second)
