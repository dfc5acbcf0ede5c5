"""Where a campaign starts: small real inputs for each target."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ssefold import GenerateDecoder, StreamError
from tests.fuzz.mutate import bodies


def seeds(target: str) -> Iterator[bytes]:
    """Inputs for ``target``; the same ones every time."""
    chance = random.Random(target)
    if target in ("sse", "decoder"):
        yield from (body for body in bodies() if len(body) < 8_000)
    elif target == "snapshot":
        for body in bodies()[::7]:
            decoder = GenerateDecoder()
            try:
                decoder.feed(body)
            except StreamError:
                continue
            yield from (output.snapshot().to_bytes() for output in decoder.outputs.values())
    else:
        yield from (chance.randbytes(24) for _ in range(200))
