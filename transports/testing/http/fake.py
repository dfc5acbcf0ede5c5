"""A fake SGLang server on loopback, for tests of code that reads its streams.

::

    with FakeSGLang() as server:
        response = httpx.post(server.url + "/generate", json={"text": "Hello", "stream": True})

It is a real HTTP server in its own thread, so synchronous, asyncio and trio clients can all use it.  A model decides
what it generates (:data:`~ssefold.transports.testing.Model`), a profile how a version writes it, a fault what goes
wrong. No test needs to sleep: ``hold`` and ``release`` stop the decoding where a test wants it, and ``wait_until``
waits for a condition on the counters.  ``token_delay`` sets a pace.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engine import NO_FAULT, Counters, Fault, GreedyModel, Model, Scheduler
from ..profiles import CUMULATIVE, PROFILES, Profile
from .server import LoopbackServer
from .service import GenerateService

if TYPE_CHECKING:
    import ssl

    from ..script import Script
    from .connection import Connection, HTTPRequest


@dataclass(frozen=True)
class Seen:
    """One request as it came in.

    :ivar headers: names in lower case.
    :ivar json: the body, or None.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    json: Any


class FakeSGLang(LoopbackServer):
    """The server; entering the block starts it, leaving it stops it and closes every socket.

    :param model: what it generates: any function from :class:`Asked` to :class:`Script`.
    :param profile: the version and flags that it imitates, by name or as a :class:`Profile`.
    :param interval: ``--stream-interval``.
    :param fault: what goes wrong with every request, or a function of its payload that says so; :meth:`fault_next` is
        for single requests.
    :param token_delay: seconds between two tokens of one output.
    :param lockstep: decode no faster than the client reads; False: as a real server, which joins or drops chunks then.
    :param max_running: outputs decoded at once; others wait in the queue.
    :param context_length: longer prompts get an error event.
    :param frees_on_disconnect: a disconnect aborts the client's outputs; default: as in that version (0.5.18 and
        0.5.19 generate to the end, and no longer know the request by its id).
    :param ssl_context: speak TLS.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        profile: Profile | str = CUMULATIVE,
        interval: int = 1,
        fault: Fault | Callable[[Any], Fault] = NO_FAULT,
        token_delay: float = 0.0,
        lockstep: bool = True,
        max_running: int | None = None,
        context_length: int = 32768,
        frees_on_disconnect: bool | None = None,
        ssl_context: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(ssl_context, port)
        self.profile: Profile = PROFILES[profile] if isinstance(profile, str) else profile
        self.seen: list[Seen] = []
        self._model = GreedyModel() if model is None else model
        self._interval = interval
        self._fault = fault
        self._next_faults: deque[Fault] = deque()
        self._condition = threading.Condition()
        if frees_on_disconnect is None:
            frees_on_disconnect = not (0, 5, 18) <= self.profile.version < (0, 5, 20)
        self._scheduler = Scheduler(
            token_delay=token_delay,
            lockstep=lockstep,
            max_running=max_running,
            frees_on_disconnect=frees_on_disconnect,
            changed=self._changed,
        )
        self._service = GenerateService(
            self._scheduler, self._model, self.profile, interval=interval, context_length=context_length
        )

    # ---- for tests

    @property
    def counters(self) -> Counters:
        """The account, live."""
        return self._scheduler.counters

    def fault_next(self, *faults: Fault) -> None:
        """What goes wrong with the next ``/generate`` requests, one each."""
        self._next_faults.extend(faults)

    def hold(self, *, after: int = 0) -> None:
        """Decode no output beyond ``after`` tokens, until :meth:`release`; 0 keeps requests in the waiting queue."""
        self.call(lambda: self._scheduler.hold(after))

    def release(self) -> None:
        """Continue decoding."""
        self.call(self._scheduler.release)

    def wait_until(self, condition: Callable[[Counters], bool], *, timeout: float = 30.0) -> None:
        """Block until the counters satisfy the condition; call it from a worker thread in asynchronous tests.

        :raises TimeoutError: they do not within ``timeout`` seconds; the message holds the counters.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: condition(self.counters), timeout):
                raise TimeoutError(f"the server's account never got there: {self.counters}")

    def truth(self, payload: Mapping[str, Any]) -> list[Script]:
        """What a client of this payload must end up with, if nothing goes wrong: one script per output."""
        return self._service.truth(payload)

    def response(self, payload: Mapping[str, Any]) -> Any:
        """The JSON that the same payload gives with ``stream: false``."""
        return self._service.response(payload)

    # ---- the server's side

    def _changed(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def opened(self) -> None:
        """See :class:`LoopbackServer`."""
        self.counters.connections += 1
        self.counters.accepted += 1

    def closed(self) -> None:
        """See :class:`LoopbackServer`."""
        self.counters.connections -= 1
        self._changed()

    def waits(self, change: int) -> None:
        """See :class:`LoopbackServer`."""
        if change:
            self.counters.slow_clients += change
            self._changed()

    async def shut_down(self) -> None:
        """See :class:`LoopbackServer`."""
        await self._scheduler.stop()

    # ---- requests

    async def serve(self, connection: Connection) -> None:
        """See :class:`LoopbackServer`."""
        while (request := await connection.next_request()) is not None:
            if not await self._answer(connection, request) or not request.keep_alive:
                return

    async def _answer(self, connection: Connection, request: HTTPRequest) -> bool:
        """Answer; False closes the connection."""
        path = request.path.partition("?")[0]
        try:
            payload = json.loads(request.body) if request.body else None
        except ValueError:
            await connection.answer(400, b'{"error":"the body is not JSON"}')
            return True
        self.seen.append(Seen(request.method, path, request.headers, payload))
        route = _ROUTES.get((request.method, path))
        if route is None:
            await connection.answer(404, b'{"detail":"Not Found"}')
            return True
        return await route(self, connection, payload)

    async def _generate(self, connection: Connection, payload: Any) -> bool:
        return await self._service.serve(connection, payload, self._fault_for(payload))

    def _fault_for(self, payload: Any) -> Fault:
        if self._next_faults:
            return self._next_faults.popleft()
        return self._fault if isinstance(self._fault, Fault) else self._fault(payload)

    async def _abort_request(self, connection: Connection, payload: Any) -> bool:
        asked: Mapping[str, Any] = payload or {}
        self._scheduler.abort(asked.get("rid") or "", abort_all=bool(asked.get("abort_all", False)))
        await connection.answer(200, b"")
        return True

    async def _server_info(self, connection: Connection, _: Any) -> bool:
        version = ".".join(map(str, self.profile.version))
        info = {
            "version": version,
            "incremental_streaming_output": self.profile.incremental,
            "skip_tokenizer_init": self.profile.tokens_only,
            "stream_interval": self._interval,
        }
        await connection.answer(200, json.dumps(info).encode())
        return True

    async def _workers(self, connection: Connection, _: Any) -> bool:
        await connection.answer(200, json.dumps({"workers": [{"url": self.url}]}).encode())
        return True

    async def _health(self, connection: Connection, _: Any) -> bool:
        await connection.answer(200, b"")
        return True


_ROUTES: Mapping[tuple[str, str], Callable[[FakeSGLang, Connection, Any], Awaitable[bool]]] = {
    ("POST", "/generate"): FakeSGLang._generate,
    ("POST", "/abort_request"): FakeSGLang._abort_request,
    ("GET", "/server_info"): FakeSGLang._server_info,
    ("GET", "/get_server_info"): FakeSGLang._server_info,
    ("GET", "/workers"): FakeSGLang._workers,
    ("GET", "/health"): FakeSGLang._health,
    ("GET", "/health_generate"): FakeSGLang._health,
}
