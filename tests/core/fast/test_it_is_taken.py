"""That the fast path is taken: how many payloads of a stream are parsed in full, for every server that there was."""

from __future__ import annotations

import pytest

from ssefold.fold import parse_payload
from ssefold.transports.testing import Profile, eager, encode, interval_sends
from tests.core.by_hand import fold
from tests.core.corpus import finite, plain, profiles, scored

MOST = 8
"""Payloads of one output: the first ones, the last one, and some on the way."""


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Payloads that were parsed in full so far."""
    seen: list[bytes] = []
    parse = parse_payload

    def counting(payload: bytes) -> dict[str, object]:
        seen.append(payload)
        return parse(payload)

    monkeypatch.setattr("ssefold.outputs.parse_payload", counting)
    return seen


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("profile", profiles(), ids=str)
def test_of_99_tokens_few_chunks_are_parsed_in_full(profile: Profile, interval: int, parsed: list[bytes]) -> None:
    for made in (finite, scored, plain):
        body = encode(made(99), profile, eager([interval_sends(99, interval)]))
        for reads in (body.events, [body.data]):
            parsed.clear()
            folded = fold(reads, fast_path=True)
            assert len(folded.outputs[0].token_ids) in (0, 99)  # 0.4.x without logprobs sends none
            assert len(parsed) <= MOST, made.__name__
