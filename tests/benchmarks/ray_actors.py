"""How many tokens a Ray actor takes per CPU second, alone and beside another; needs ray and httpx.

``python -m tests.benchmarks.ray_actors`` prints the table of ``docs/scaling.md``.  A recorded body is replayed from a
process of its own, so that the server's work is not counted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from importlib import import_module
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from ssefold.adapters.rollout import RolloutSample, run
from ssefold.transports.testing import FakeSGLang, GreedyModel

TOKENS = 2_000
STREAMS = 32
RUNS = 5


def recorded_body() -> bytes:
    httpx: Any = import_module("httpx")
    with FakeSGLang(GreedyModel(7), profile="0.5.23-incremental") as server:
        payload = {**new_sample().next_payload(), "rid": "r" * 32}
        body: bytes = httpx.post(f"{server.url}/generate", json=payload, timeout=None).content
    return body


def serve(body: bytes, told: Connection) -> None:
    """Answer every request with ``body``, as fast as the socket takes it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
                length = next(line for line in request if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def new_sample() -> RolloutSample:
    return RolloutSample([11, 12, 13], sampling_params={"max_new_tokens": TOKENS})


class Worker:
    """Becomes an actor."""

    async def finish(self, samples: list[RolloutSample], url: str) -> tuple[int, float]:
        """Tokens that came, and the CPU seconds that they took."""
        httpx: Any = import_module("httpx")
        transports: Any = import_module("ssefold.transports.httpx")
        before = time.process_time()
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as client:

            def transport(url: str, payload: dict[str, Any]) -> Any:
                return transports.generate(client, url, payload)

            await asyncio.gather(*(run(sample, [url], transport) for sample in samples))
        return sum(len(sample.token_ids) for sample in samples), time.process_time() - before


def main() -> None:
    ray: Any = import_module("ray")
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(recorded_body(), theirs), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    workers = [ray.remote(num_cpus=1)(Worker).remote() for _ in range(2)]
    ray.get([worker.finish.remote([new_sample()], url) for worker in workers])  # warm
    print("actors  tokens per CPU second (range)  tokens per second (range)")  # noqa: T201
    for actors in (1, 2):
        by_cpu: list[float] = []
        by_clock: list[float] = []
        for _ in range(RUNS):
            shares = [[new_sample() for _ in range(STREAMS // actors)] for _ in range(actors)]
            begun = time.perf_counter()
            results = ray.get(
                [worker.finish.remote(share, url) for worker, share in zip(workers, shares, strict=False)]
            )
            elapsed = time.perf_counter() - begun
            tokens = sum(count for count, _ in results)
            assert tokens == TOKENS * STREAMS
            by_cpu.append(tokens / sum(seconds for _, seconds in results))
            by_clock.append(tokens / elapsed)
        shown = [f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})" for rates in (by_cpu, by_clock)]
        print(f"{actors:6}  {shown[0]:29}  {shown[1]}")  # noqa: T201
    ray.shutdown()
    server.terminate()


if __name__ == "__main__":
    main()
