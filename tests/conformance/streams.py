"""Every server version's streams: this library, without configuration, against slime's rule with the right one.

Only what slime asks for counts here: one output, with logprobs.  The generations are those of the core's own tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ssefold import GenerateDecoder, IncompleteStreamError, StreamError
from ssefold.transports.testing import PROFILES, Profile
from tests.conformance.rule_2272 import Rule2272
from tests.core.by_hand import exact
from tests.core.corpus import Case, cases

Verdict = Literal["right", "refused", "wrong"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Made:
    """What somebody made of one body.

    :ivar why: the error that it was refused with; "" if it was not.
    """

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Row:
    """One profile: the verdicts by generation."""

    profile: str
    ours: dict[str, Made]
    rule: dict[str, Made]
    rule_at_lf: dict[str, Made]


def rows(names: Sequence[str] = tuple(PROFILES)) -> list[Row]:
    """Both over all generations of each profile."""
    return [_row(PROFILES[name]) for name in names]


def _row(profile: Profile) -> Row:
    asked = [case for case in cases(profile) if len(case.scripts) == 1 and case.scripts[0].logprobs is not None]
    return Row(
        profile.name,
        {case.name: ours(case) for case in asked},
        {case.name: rule(case) for case in asked},
        {case.name: rule(case, at_lf=True) for case in asked},
    )


def ours(case: Case) -> Made:
    """The decoder as it comes, with no mode told."""
    decoder = GenerateDecoder()
    error: StreamError | None = None
    try:
        for data in case.body.events:
            decoder.feed(data)
        decoder.close()
    except StreamError as caught:
        error = caught
    output = decoder.outputs.get(0)
    tokens = [] if output is None else list(output.token_ids)
    logprobs = [] if output is None else list(output.logprobs)
    return _judge(case, tokens, logprobs, error, isinstance(error, IncompleteStreamError))


def rule(case: Case, *, at_lf: bool = False) -> Made:
    """The rule of pull request 2272, told the mode that the server was started with."""
    fold = Rule2272("incremental" if case.profile.incremental else "cumulative", at_lf=at_lf)
    error: Exception | None = None
    try:
        fold.fold(case.body.events)
    except (ValueError, RuntimeError) as caught:
        error = caught
    return _judge(case, fold.tokens, fold.logprobs, error, isinstance(error, RuntimeError))


def _judge(
    case: Case, tokens: list[int], logprobs: Sequence[Any], error: Exception | None, says_incomplete: bool
) -> Made:
    """Right is the truth, and of a stream that has no end, what came and that it has none."""
    held = case.body.held[0]
    if error is not None and not (says_incomplete and not held.complete):
        return Made("refused", str(error))
    same = tokens == list(held.token_ids) and exact(logprobs) == exact(held.logprobs)
    return Made("right" if same and (held.complete or error is not None) else "wrong")


def totals(made: Sequence[dict[str, Made]]) -> list[str]:
    """How many streams got each verdict."""
    counts = Counter(one.verdict for row in made for one in row.values())
    return [str(counts[verdict]) for verdict in VERDICTS]


def summary(made: dict[str, Made]) -> str:
    """One cell: how many were right, and which were not."""
    counts = Counter(one.verdict for one in made.values())
    parts = [f"{counts['right']} of {len(made)}"]
    for verdict in ("refused", "wrong"):
        names = [name for name, one in made.items() if one.verdict == verdict]
        if names:
            parts.append(f"{verdict}: {'all' if len(names) == len(made) else ', '.join(names)}")
    return "; ".join(parts)
