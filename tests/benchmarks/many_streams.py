"""What a stream costs an event loop that has many of them: with the library, and with the loop that one would write.

``python -m tests.benchmarks.many_streams`` measures httpx, aiohttp and anyio with h11.  The bodies come from a process
of its own, event by event at the pace of a server under load, so that reads are as small as they are then.  CPU time is
the client's alone; how late a timer of the same loop comes (its lag) is what everything else on that loop would feel.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.bodies import DONE, counts_of, events, make_answer
from tests.benchmarks.report import Bar, Section, at_most, table
from tests.benchmarks.scale import FULL, Load, Scale
from tests.benchmarks.timing import in_turn, median

MODES = ("incremental", "cumulative")
_STREAMS, _PERIOD, _LENGTHS = 16, 0.004, (256, 1024)
_TICK = 0.005
_RECEIVE = 2**16


Contender = Callable[[str, int], Coroutine[Any, Any, int]]
"""Takes a url and a number of streams; gives the bytes, or tokens, that all of them had."""

Fold = Callable[[bytes], int]
"""Takes a read; gives the tokens so far."""


def measure(scale: Scale) -> list[Section]:
    """What a token costs beside the loop that one would write, then what a stream costs beside only reading."""
    return [_tokens(scale), _streams(scale)]


def _tokens(scale: Scale) -> Section:
    rows: list[list[str]] = []
    bars: list[Bar] = []
    streams, period = min(_STREAMS, scale.load.streams), min(_PERIOD, scale.load.period)
    for tokens in _LENGTHS:
        load = Load(streams, min(tokens, 8 * scale.load.tokens), 1, period, scale.load.rounds)
        with served(load) as url:
            for mode in MODES:
                wanted = [client for client in CLIENTS if (mode, tokens, client) in _BARS]
                if not wanted:
                    continue
                contenders = {name: one for client in wanted for name, one in side_by_side(client).items()}
                best = {
                    name: min(cpu for cpu, _ in run) for name, run in _race(contenders, f"{url}/{mode}", load).items()
                }
                for client in wanted:
                    ratio = best[f"{client}, ours"] / best[_by_hand(client)]
                    names = (_by_hand(client), f"{client}, decoder", f"{client}, ours")
                    cells = [
                        f"{best[name] / streams / load.tokens * 1e6:.1f}" if name in best else "-" for name in names
                    ]
                    rows.append([f"{mode}, {load.tokens:,} tokens, {client}", *cells, f"{ratio:.2f}x"])
                    bar = f"CPU a token, {mode}, {tokens:,} tokens, {client}, against the hand-written loop"
                    bars.append(at_most(bar, _BARS[mode, tokens, client], ratio))
    return Section(
        "From the socket to the update",
        f"{streams} streams at once, an event with one token every {period * 1e3:g} ms to each, from a server in"
        " another process. CPU us a token that the client takes: with a loop written by hand over the same client"
        " (orjson, no checks, no cleaning up; httpx's for anyio), with this library's decoder alone in that loop, and"
        " with the library's stream. The fewest of all rounds.",
        ["body, client", "by hand", "by hand with the decoder", "ours", "ours / by hand"],
        rows,
        bars,
    )


def _streams(scale: Scale) -> Section:
    load = scale.load
    rows: list[list[str]] = []
    ratios: list[float] = []
    with served(load) as url:
        for mode in MODES:
            for client, (reading, ours) in CLIENTS.items():
                runs = _race({"reading": reading, "ours": ours}, f"{url}/{mode}", load)
                read, folded = (_Cost(*(median(column) for column in zip(*run, strict=True))) for run in runs.values())
                ratios.append(folded.cpu / read.cpu)
                rows.append(
                    [f"{mode}, {client}"]
                    + [f"{side.cpu / load.streams * 1e3:.2f}" for side in (read, folded)]
                    + [f"{ratios[-1]:.2f}x"]
                    + [f"{side.lag * 1e3:.1f}" for side in (read, folded)]
                )
    bar = at_most(f"{load.streams} streams: CPU against only reading the body, the worst client", 1.5, max(ratios))
    return Section(
        "Many streams on one event loop",
        f"{load.streams} streams at once, {load.tokens} tokens each, an event with {load.interval} tokens every"
        f" {load.period} s, from a server in another process. CPU ms that one stream takes of the client: only"
        " reading its body, and with the library; and the time by which a timer of the same loop came too late, in"
        " ms, at the 99th percentile.",
        ["body, client", "CPU, reading", "CPU, ours", "ratio", "lag p99, reading", "lag p99, ours"],
        rows,
        [bar],
    )


# ---- the contenders


async def _httpx_reads(url: str, streams: int) -> int:
    async with _httpx_client() as client:

        async def one() -> int:
            size = 0
            async with client.stream("POST", url, content=b"{}") as response:
                async for data in response.aiter_raw():
                    size += len(data)
            return size

        return sum(await asyncio.gather(*(one() for _ in range(streams))))


async def _httpx_ours(url: str, streams: int) -> int:
    from ssefold.transports.httpx import generate

    async with _httpx_client() as client:
        return sum(await asyncio.gather(*(_fold(generate(client, url, _PAYLOAD)) for _ in range(streams))))


async def _aiohttp_reads(url: str, streams: int) -> int:
    async with _aiohttp_session() as session:

        async def one() -> int:
            size = 0
            async with session.post(url, data=b"{}") as response:
                async for data in response.content.iter_any():
                    size += len(data)
            return size

        return sum(await asyncio.gather(*(one() for _ in range(streams))))


async def _aiohttp_ours(url: str, streams: int) -> int:
    from ssefold.transports.aiohttp import generate

    async with _aiohttp_session() as session:
        return sum(await asyncio.gather(*(_fold(generate(session, url, _PAYLOAD)) for _ in range(streams))))


async def _httpx_by_hand(url: str, streams: int, make: Callable[[], Fold]) -> int:
    async with _httpx_client() as client:

        async def one() -> int:
            fold = make()
            async with client.stream("POST", url, content=json.dumps(_PAYLOAD)) as response:
                async for data in response.aiter_raw():
                    fold(data)
            return fold(b"")

        return sum(await asyncio.gather(*(one() for _ in range(streams))))


async def _aiohttp_by_hand(url: str, streams: int, make: Callable[[], Fold]) -> int:
    async with _aiohttp_session() as session:

        async def one() -> int:
            fold = make()
            async with session.post(url, data=json.dumps(_PAYLOAD)) as response:
                while data := await response.content.readany():
                    fold(data)
            return fold(b"")

        return sum(await asyncio.gather(*(one() for _ in range(streams))))


def _loop_of(incremental: bool) -> Callable[[], Fold]:
    """What one would write: split, parse, keep what is new, trust the rest."""
    import orjson

    def make() -> Fold:
        rest = b""
        ids: list[int] = []
        logprobs: list[float] = []
        text: list[str] = []
        length = 0

        def fold(data: bytes) -> int:
            nonlocal rest, length
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    break
                chunk = orjson.loads(event[6:])
                meta = chunk["meta_info"]
                if incremental:
                    new_ids, new_rows = chunk["output_ids"], meta["output_token_logprobs"]
                    text.append(chunk["text"])
                else:
                    new_ids, new_rows = chunk["output_ids"][len(ids) :], meta["output_token_logprobs"][len(ids) :]
                    text.append(chunk["text"][length:])
                    length = len(chunk["text"])
                ids.extend(new_ids)
                logprobs.extend([row[0] for row in new_rows])
            return len(ids)

        return fold

    return make


def _decoder() -> Fold:
    from ssefold import GenerateDecoder

    decoder = GenerateDecoder()
    tokens = 0

    def fold(data: bytes) -> int:
        nonlocal tokens
        for update in decoder.feed(data):
            tokens += len(update.token_ids)
        return tokens

    return fold


async def _anyio_reads(url: str, streams: int) -> int:
    import anyio
    import h11

    parts = urlsplit(url)
    headers = [("Host", parts.netloc), ("Connection", "close"), ("Content-Length", "2")]

    async def one() -> int:
        size = 0
        protocol = h11.Connection(h11.CLIENT)
        request = h11.Request(method="POST", target=parts.path, headers=headers)
        async with await anyio.connect_tcp(parts.hostname or "", parts.port or 80) as stream:
            sends = (protocol.send(event) or b"" for event in (request, h11.Data(b"{}"), h11.EndOfMessage()))
            await stream.send(b"".join(sends))
            while not isinstance(event := protocol.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    protocol.receive_data(await stream.receive(_RECEIVE))
                elif isinstance(event, h11.Data):
                    size += len(event.data)
        return size

    return sum(await asyncio.gather(*(one() for _ in range(streams))))


async def _anyio_ours(url: str, streams: int) -> int:
    from ssefold.transports.anyio import generate

    return sum(await asyncio.gather(*(_fold(generate(url, _PAYLOAD)) for _ in range(streams))))


CLIENTS: Mapping[str, tuple[Contender, Contender]] = {
    "httpx": (_httpx_reads, _httpx_ours),
    "aiohttp": (_aiohttp_reads, _aiohttp_ours),
    "anyio, h11": (_anyio_reads, _anyio_ours),
}
_BY_HAND = {"httpx": _httpx_by_hand, "aiohttp": _aiohttp_by_hand}
# Ours over the hand-written loop: what each must stay below.
_BARS = {
    ("incremental", 256, "httpx"): 1.08,
    ("incremental", 256, "aiohttp"): 1.08,
    ("incremental", 256, "anyio, h11"): 0.75,
    ("cumulative", 256, "httpx"): 0.93,
    ("cumulative", 256, "aiohttp"): 0.78,
    ("cumulative", 256, "anyio, h11"): 0.72,
    ("cumulative", 1024, "httpx"): 0.45,
    ("cumulative", 1024, "aiohttp"): 0.33,
    ("cumulative", 1024, "anyio, h11"): 0.32,
}


def _by_hand(client: str) -> str:
    return f"{client if client in _BY_HAND else 'httpx'}, by hand"


def side_by_side(client: str) -> dict[str, Contender]:
    found: dict[str, Contender] = {f"{client}, ours": CLIENTS[client][1]}
    by_hand = _BY_HAND.get(client)
    if by_hand is not None:

        async def plain(url: str, streams: int) -> int:
            return await by_hand(url, streams, _loop_of(url.endswith("/incremental")))

        async def decoder(url: str, streams: int) -> int:
            return await by_hand(url, streams, _decoder)

        found |= {f"{client}, by hand": plain, f"{client}, decoder": decoder}
    return found


_PAYLOAD: Mapping[str, Any] = {"input_ids": [1, 2, 3], "return_logprob": True}
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Unused, but httpx would read the system's certificates for each client."""


def _httpx_client() -> Any:
    import httpx

    # httpcore looks at all connections for every idle one, whenever a request ends: none is kept.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=None, limits=limits, verify=_TLS)


def _aiohttp_session() -> Any:
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_read=None)
    )


async def _fold(stream: Any) -> int:
    tokens = 0
    async with stream:
        async for update in stream:
            tokens += len(update.token_ids)
    return tokens


# ---- timing


@dataclass(frozen=True)
class _Cost:
    cpu: float
    lag: float


def _race(contenders: Mapping[str, Contender], url: str, load: Load) -> dict[str, list[tuple[float, float]]]:
    """CPU seconds and lag of each round, by contender."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(load.rounds):
        for name in in_turn(list(contenders), turn):
            gc.collect()
            runs[name].append(asyncio.run(_timed(contenders[name], url, load)))
    return runs


async def _timed(contender: Contender, url: str, load: Load) -> tuple[float, float]:
    lags: list[float] = []

    async def tick() -> None:
        while True:
            due = perf_counter() + _TICK
            await asyncio.sleep(_TICK)
            lags.append(perf_counter() - due)

    ticker = asyncio.create_task(tick())
    start = process_time()
    total = await contender(url, load.streams)
    seconds = process_time() - start
    ticker.cancel()
    with suppress(asyncio.CancelledError):
        await ticker
    if total % load.streams or not total:
        raise RuntimeError(f"{total} in all is not the same for each of {load.streams} streams")
    return seconds, percentile(lags, 99)


def percentile(values: Sequence[float], part: int) -> float:
    """The smallest value that at least ``part`` per cent do not exceed; 0.0 for none."""
    return sorted(values)[max(-(-len(values) * part // 100) - 1, 0)] if values else 0.0


# ---- the server


@contextmanager
def served(load: Load) -> Iterator[str]:
    answer, counts = make_answer(load.tokens), counts_of(load.tokens, load.interval)
    bodies = {mode: [*events(answer, counts, incremental=mode == "incremental"), DONE] for mode in MODES}
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(bodies, load.period, there), daemon=True)
    process.start()
    there.close()  # so that a server that dies is noticed
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(bodies: Mapping[str, Sequence[bytes]], period: float, told: Connection) -> None:
    """Answer each request with the body that its path names, an HTTP chunk an event, one every ``period`` seconds."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            # All of it: to close a connection that holds unread bytes is to reset it.
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for event in bodies[head.split(b" ", 2)[1].decode().strip("/")]:
                await asyncio.sleep(period)
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


if __name__ == "__main__":
    for section in measure(FULL):
        print(f"{section.text}\n\n{table(section.header, section.rows)}")  # noqa: T201
        print("\n".join(f"{bar.what}: {bar.measured} ({bar.bar})" for bar in section.bars))  # noqa: T201
