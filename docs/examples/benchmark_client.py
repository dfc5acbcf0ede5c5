"""Many streams at once, and the percentiles of time to first token (ttft) and between tokens (itl).

Needs: pip install httpx, and ssefold itself (in a clone: pip install .)
Run:   python benchmark_client.py [http://localhost:30000]
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import asyncio
import sys
from itertools import chain

import httpx

from ssefold.transports import StreamResult, gather
from ssefold.transports.httpx import generate
from ssefold.transports.testing import FakeSGLang

REQUESTS, CONCURRENCY = 32, 8


def percentiles(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    shown = (
        f"p{share} {ordered[min(len(ordered) * share // 100, len(ordered) - 1)] * 1000:.2f}" for share in (50, 90, 99)
    )
    print(f"{name} ms: {', '.join(shown)}" if ordered else f"{name}: none")


async def main(url: str) -> list[StreamResult]:
    limits = httpx.Limits(max_connections=CONCURRENCY)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:
        streams = [
            generate(client, f"{url}/generate", {"input_ids": [i, 2, 3], "sampling_params": {"max_new_tokens": 64}})
            for i in range(REQUESTS)
        ]
        results = await gather(streams, limit=CONCURRENCY)
    failed = [result.error for result in results if result.error is not None]
    metrics = [result.stream.metrics for result in results]
    print(f"{len(results)} requests, {len(failed)} failed, {sum(one.tokens for one in metrics)} tokens")
    percentiles("ttft", [one.ttft for one in metrics if one.ttft is not None])
    percentiles("itl", list(chain.from_iterable(one.inter_token_times for one in metrics)))
    return results


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with FakeSGLang(token_delay=0.001) as server:
            asyncio.run(main(server.url))
