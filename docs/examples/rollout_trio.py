"""Rollouts under trio, with a deadline: what has arrived by then is kept, and resumed.

Needs: pip install anyio h11 trio, and ssefold itself (in a clone: pip install .)
Run:   python rollout_trio.py [http://localhost:30000]
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import sys

import trio

from ssefold.adapters.rollout import RolloutSample
from ssefold.transports.anyio import generate
from ssefold.transports.testing import FakeSGLang

PROMPTS = {"first": [1, 2, 3], "second": [4, 5, 6]}


async def stream_into(sample: RolloutSample, url: str) -> None:
    async with generate(f"{url}/generate", sample.next_payload(), on_cancel="direct") as stream:
        async for update in stream:
            sample.apply(update)


async def main(url: str) -> dict[str, RolloutSample]:
    samples = {name: RolloutSample(ids, sampling_params={"max_new_tokens": 300}) for name, ids in PROMPTS.items()}
    with trio.move_on_after(0.2):
        async with trio.open_nursery() as nursery:
            for sample in samples.values():
                nursery.start_soon(stream_into, sample, url)
    for name, sample in samples.items():
        print(f"{name}: {sample.status} at the deadline, {len(sample.token_ids)} tokens")
        while not sample.done:
            await stream_into(sample, url)
        print(f"{name}: {sample.status}, {len(sample.token_ids)} tokens")
    return samples


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trio.run(main, sys.argv[1])
    else:
        with FakeSGLang(token_delay=0.002) as server:
            trio.run(main, server.url)
