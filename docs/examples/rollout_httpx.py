"""A rollout that is aborted in the middle and resumed, with httpx.

Needs: pip install httpx, and ssefold itself (in a clone: pip install .)
Run:   python rollout_httpx.py [http://localhost:30000]
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import asyncio
import sys

import httpx

from ssefold.adapters.rollout import RolloutSample
from ssefold.transports.httpx import generate
from ssefold.transports.testing import FakeSGLang

PROMPT_IDS = [1, 2, 3, 4, 5]


async def stream_into(sample: RolloutSample, client: httpx.AsyncClient, url: str, stop_at: int | None = None) -> None:
    async with generate(client, f"{url}/generate", sample.next_payload(source=url), on_cancel="direct") as stream:
        async for update in stream:
            sample.apply(update)
            if stop_at is not None and len(sample.token_ids) >= stop_at:
                await stream.abort()  # reads on to the terminal chunk, which alone carries replay arrays


async def main(url: str) -> RolloutSample:
    sample = RolloutSample(PROMPT_IDS, sampling_params={"max_new_tokens": 200})
    async with httpx.AsyncClient(timeout=None) as client:
        await stream_into(sample, client, url, stop_at=50)
        print(f"{sample.status} after {len(sample.token_ids)} tokens")
        # New weights would be loaded here; the sample could also travel to another machine as sample.to_bytes().
        while not sample.done:
            await stream_into(sample, client, url)
    print(f"{sample.status} after {len(sample.token_ids)} tokens, in {len(sample.calls)} calls")
    return sample


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with FakeSGLang(token_delay=0.001) as server:
            asyncio.run(main(server.url))
