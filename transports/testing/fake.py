"""A fake SGLang server on loopback, for the tests of everybody who reads its streams.

::

    with FakeSGLang() as server:
        response = httpx.post(server.url + "/generate", json={"text": "Hello", "stream": True})

It is a real HTTP server in a thread of its own, so synchronous, asyncio and trio clients can all talk to it.  What it
generates is a model's matter (:mod:`~ssefold.transports.testing.model`), how a version writes it down a profile's, what
goes wrong a fault's.  Nothing waits by the clock unless ``token_delay`` is set: ``hold`` and ``release`` stop the
decoding where a test wants it, and ``wait_until`` sees what the server has done.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .engine import Counters, Engine
from .fault import NO_FAULT, Fault
from .http1 import ClosedError, Connection, HTTPRequest
from .model import GreedyModel, Model
from .profiles import CUMULATIVE, PROFILES, Profile
from .service import GenerateService

if TYPE_CHECKING:
    import ssl

    from .script import Script


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


class FakeSGLang:
    """The server; entering the block starts it, leaving it stops it and closes every socket.

    :param model: what it generates: any function from :class:`Asked` to :class:`Script`.
    :param profile: the version and flags that it imitates, by name or as a :class:`Profile`.
    :param interval: ``--stream-interval``.
    :param fault: what goes wrong with every request; :meth:`fault_next` is for single ones.
    :param token_delay: seconds between two tokens of one output.
    :param lockstep: decode no faster than the client reads; False: as a real server, which joins or drops chunks then.
    :param max_running: outputs decoded at once; others wait in the queue.
    :param context_length: longer prompts get an error event.
    :param frees_on_disconnect: a client that goes takes its outputs with it; default: as the version does (0.5.18 and
        0.5.19 decode to the end, and no longer know the request by its id).
    :param ssl_context: speak TLS.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        profile: Profile | str = CUMULATIVE,
        interval: int = 1,
        fault: Fault = NO_FAULT,
        token_delay: float = 0.0,
        lockstep: bool = True,
        max_running: int | None = None,
        context_length: int = 32768,
        frees_on_disconnect: bool | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.profile = PROFILES[profile] if isinstance(profile, str) else profile
        self.seen: list[Seen] = []
        self._model = GreedyModel() if model is None else model
        self._interval = interval
        self._fault = fault
        self._next_faults: deque[Fault] = deque()
        self._ssl = ssl_context
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._errors: list[BaseException] = []
        self._started = threading.Event()
        self._port = 0
        if frees_on_disconnect is None:
            frees_on_disconnect = not (0, 5, 18) <= self.profile.version < (0, 5, 20)
        self._engine = Engine(
            token_delay=token_delay,
            lockstep=lockstep,
            max_running=max_running,
            frees_on_disconnect=frees_on_disconnect,
            changed=self._changed,
        )
        self._service = GenerateService(
            self._engine, self._model, self.profile, interval=interval, context_length=context_length
        )

    # ---- life

    def __enter__(self) -> FakeSGLang:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving; returns when the port is open."""
        if self._thread is not None:
            raise RuntimeError("this server was started before; make another")
        self._thread = threading.Thread(target=self._run, name="FakeSGLang", daemon=True)
        self._thread.start()
        self._started.wait()
        self._raise_error()

    def stop(self) -> None:
        """Cut all connections and end the thread.

        :raises Exception: what went wrong inside the server itself, the model included.
        """
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    @property
    def url(self) -> str:
        """Scheme, host and port, without a path."""
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self._port}"

    # ---- for tests

    @property
    def counters(self) -> Counters:
        """The account, live."""
        return self._engine.counters

    def fault_next(self, *faults: Fault) -> None:
        """What goes wrong with the next ``/generate`` requests, one each."""
        self._next_faults.extend(faults)

    def hold(self, *, after: int = 0) -> None:
        """Decode no output beyond ``after`` tokens, until :meth:`release`; 0 keeps requests in the waiting queue."""
        self._call(lambda: self._engine.hold(after))

    def release(self) -> None:
        """Go on decoding."""
        self._call(self._engine.release)

    def wait_until(self, condition: Callable[[Counters], bool], *, timeout: float = 30.0) -> None:
        """Block until the account satisfies the condition; call it from a worker thread in asynchronous tests.

        :raises TimeoutError: it does not in ``timeout`` seconds; the message is the account.
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

    # ---- the thread

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is None:
            raise RuntimeError("the server is not running")
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _changed(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # raised by `start` or `stop`
            self._errors.append(error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        handlers: set[asyncio.Task[Any]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                handlers.add(task)
            self.counters.connections += 1
            self.counters.accepted += 1
            connection = Connection(reader, writer)
            try:
                await self._serve_connection(connection)
            except asyncio.CancelledError:
                connection.reset()  # the server stops
            except Exception as error:  # noqa: BLE001  # raised by `stop`, where somebody sees it
                self._errors.append(error)
            finally:
                await connection.close()
                self.counters.connections -= 1
                if task is not None:
                    handlers.discard(task)
                self._changed()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=self._ssl, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        await self._engine.stop()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    # ---- requests

    async def _serve_connection(self, connection: Connection) -> None:
        try:
            while (request := await connection.next_request()) is not None:
                if not await self._answer(connection, request) or not request.keep_alive:
                    return
        except ClosedError:
            return

    async def _answer(self, connection: Connection, request: HTTPRequest) -> bool:
        """Answer; False closes the connection."""
        path = request.path.partition("?")[0]
        payload = json.loads(request.body) if request.body else None
        self.seen.append(Seen(request.method, path, request.headers, payload))
        route = _ROUTES.get((request.method, path))
        if route is None:
            await connection.answer(404, b'{"detail":"Not Found"}')
            return True
        return await route(self, connection, payload)

    async def _generate(self, connection: Connection, payload: Any) -> bool:
        fault = self._next_faults.popleft() if self._next_faults else self._fault
        return await self._service.serve(connection, payload, fault)

    async def _abort_request(self, connection: Connection, payload: Any) -> bool:
        asked: Mapping[str, Any] = payload or {}
        self._engine.abort(asked.get("rid") or "", abort_all=bool(asked.get("abort_all", False)))
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


_ROUTES: Mapping[tuple[str, str], Callable[[FakeSGLang, Connection, Any], Any]] = {
    ("POST", "/generate"): FakeSGLang._generate,
    ("POST", "/abort_request"): FakeSGLang._abort_request,
    ("GET", "/server_info"): FakeSGLang._server_info,
    ("GET", "/get_server_info"): FakeSGLang._server_info,
    ("GET", "/workers"): FakeSGLang._workers,
    ("GET", "/health"): FakeSGLang._health,
    ("GET", "/health_generate"): FakeSGLang._health,
}
