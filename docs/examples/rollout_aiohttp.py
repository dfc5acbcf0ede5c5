"""A rollout that loses its server in the middle and goes on with another one, with aiohttp.

Needs: pip install aiohttp, and ssefold itself (in a clone: pip install .)
Run:   python rollout_aiohttp.py [http://a:30000 http://b:30000]
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

import aiohttp

from ssefold.adapters.rollout import RolloutSample, run
from ssefold.transports.aiohttp import generate
from ssefold.transports.testing import FakeSGLang, Fault

PROMPT_IDS = [1, 2, 3, 4, 5]


async def main(urls: list[str]) -> RolloutSample:
    sample = RolloutSample(PROMPT_IDS, sampling_params={"max_new_tokens": 100})
    async with aiohttp.ClientSession() as session:
        await run(sample, urls, partial(generate, session, idle_timeout=60.0), attempts=4)
    for call in sample.calls:
        print(f"tokens {call.start} to {call.end} came from {call.source}")
    print(f"{sample.status} after {len(sample.token_ids)} tokens")
    return sample


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1:]))
    else:
        # The first one dies in the middle of a chunk.
        with FakeSGLang(fault=Fault(cut_at=20_000)) as dying, FakeSGLang() as healthy:
            asyncio.run(main([dying.url, healthy.url]))
