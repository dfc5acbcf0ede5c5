"""Real streams as payloads: what every released server writes, one output or a batch, at several intervals.

Where a campaign against the two paths begins.  Knows the encoder and the recorded bodies; edits nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from ssefold import SSEParser
from ssefold.transports.testing import Profile, Script, choose, eager, encode, interval_sends
from tests.core.corpus import cases, finite, plain, profiles, rich, scored
from tests.fuzz.mutate import bodies

_SCRIPTS: tuple[Callable[[int], Script], ...] = (plain, scored, finite, rich)
_MOST = 60_000


def payloads(chance: random.Random) -> list[bytes]:
    """The payloads of one body, in order."""
    kind = chance.random()
    if kind < 0.1:
        found = _recorded(chance.randrange(len(bodies())))
    else:
        profile = chance.choice(profiles())
        if kind < 0.5:
            found = _of_corpus(profile, chance.randrange(len(cases(profile))))
        elif kind < 0.9 or profile.family == "dynamo":
            found = _made(profile, chance.randrange(len(_SCRIPTS)), chance.choice((1, 1, 3, 8)), chance.randint(0, 1))
        else:
            found = _batch(profile, chance.choice((1, 3)), chance.randrange(4))
    if sum(map(len, found)) > _MOST:
        found = found[:12] + found[-2:]
    return list(found)


def adorned(chance: random.Random, events: list[bytes]) -> list[bytes]:
    """The payloads with what gateways and plugins add: a changing time stamp, lists of their own, other spelling."""
    if chance.random() < 0.5:
        return events
    stamp, lists, form = chance.random() < 0.5, chance.random() < 0.3, chance.randrange(6)
    as_text, at_top, grows = chance.random() < 0.3, chance.random() < 0.3, chance.random() < 0.5
    made: list[bytes] = []
    known: dict[int, list[Any]] = {}
    for at, event in enumerate(events):
        try:
            payload = json.loads(event)
        except ValueError:
            made.append(event)
            continue
        meta = payload.get("meta_info")
        if isinstance(meta, dict):
            if stamp:
                value = f"2026-01-01T00:00:{at:02d}Z" if as_text else 1.7e9 + at / 8
                (payload if at_top else meta)["ts"] = value
            if lists and type(meta.get("completion_tokens")) is int:
                mine = known.setdefault(payload.get("index") or 0, [])
                old = len(mine)
                mine.extend((at, "x", [at], None, -0.0)[one % 5] for one in range(old, meta["completion_tokens"]))
                meta["mine"] = mine[:] if grows else mine[old:]
        made.append(_SPELLED[form](payload))
    return made


def _spelled(**options: Any) -> Callable[[Any], bytes]:
    return lambda value: json.dumps(value, **options).encode("utf-8", "surrogatepass")


_COMPACT = (",", ":")
_SPELLED = (
    _spelled(ensure_ascii=False, separators=_COMPACT),
    _spelled(separators=_COMPACT),
    _spelled(),
    _spelled(ensure_ascii=False),
    _spelled(separators=_COMPACT, sort_keys=True),
    _spelled(separators=(" ,", ": "), ensure_ascii=False),
)


@cache
def _recorded(place: int) -> tuple[bytes, ...]:
    return tuple(event.data_bytes for event in SSEParser().feed(bodies()[place]))


@cache
def _of_corpus(profile: Profile, place: int) -> tuple[bytes, ...]:
    return _split(cases(profile)[place].body.data)


@cache
def _made(profile: Profile, script: int, interval: int, texts: int) -> tuple[bytes, ...]:
    tokens = 12 if interval == 1 else 24
    chosen = _SCRIPTS[script](tokens)
    if script == 3 and profile.custom not in ("list", "snapshot"):
        chosen = replace(chosen, custom={})
    chosen = replace(chosen, text_in_logprobs=bool(texts) and bool(chosen.logprobs))
    return _split(encode(chosen, profile, eager([interval_sends(tokens, interval)], ())).data)


@cache
def _batch(profile: Profile, interval: int, seed: int) -> tuple[bytes, ...]:
    scripts: tuple[Script, ...] = (scored(12, rid="a_0"), plain(8, first=301, rid="b_1"), finite(10))
    if seed % 2:
        scripts = tuple(replace(script, rid=f"r{at}") for at, script in enumerate((scored(9), scored(9, first=401))))
    chosen = [] if profile.loses_ids else random.Random(seed).choices(range(4), k=200)
    sends = [interval_sends(len(script.token_ids), interval) for script in scripts]
    return _split(encode(scripts, profile, choose(sends, chosen)).data)


def _split(body: bytes) -> tuple[bytes, ...]:
    return tuple(event.data_bytes for event in SSEParser().feed(body))
