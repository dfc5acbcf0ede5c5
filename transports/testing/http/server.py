"""A loopback server with its own thread and event loop; stopping it closes everything that it opened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .connection import ClosedError, Connection

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self


class LoopbackServer:
    """Serves 127.0.0.1; entering the block starts it, leaving it stops it and closes every socket.

    :param ssl_context: speak TLS.
    :param port: listen here; 0: on any free port.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._ssl = ssl_context
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._errors: list[BaseException] = []
        self._started = threading.Event()
        self._port = port

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving; returns when the port is open."""
        if self._thread is not None:
            raise RuntimeError("this server was started before; make another")
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()
        self._started.wait()
        self._raise_error()

    def stop(self) -> None:
        """Cut all connections and end the thread.

        :raises Exception: what went wrong inside the server itself.
        """
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._raise_error()

    @property
    def url(self) -> str:
        """Scheme, host and port, without a path."""
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self._port}"

    # ---- for servers

    async def serve(self, connection: Connection) -> None:
        """One connection, from its first request to its last."""
        raise NotImplementedError

    async def shut_down(self) -> None:
        """Called when the server stops, before connections are cut."""

    def opened(self) -> None:
        """Called for each connection."""

    def closed(self) -> None:
        """Called when it is gone."""

    def waits(self, change: int) -> None:
        """Called around each wait for a slow client."""

    def call(self, function: Callable[[], None]) -> None:
        """Run in the server's thread, and wait for it."""
        if self._loop is None:
            raise RuntimeError("the server is not running")
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    # ---- the thread

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

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
            self.opened()
            connection = Connection(reader, writer, self.waits)
            try:
                await self.serve(connection)
            except asyncio.CancelledError:
                connection.reset()  # the server stops
            except ClosedError:
                pass  # the client's right
            except Exception as error:  # noqa: BLE001  # raised by `stop`, where the caller sees it
                self._errors.append(error)
            finally:
                await connection.close()
                if task is not None:
                    handlers.discard(task)
                self.closed()

        server = await asyncio.start_server(handle, "127.0.0.1", self._port, ssl=self._ssl, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        # First nothing more is accepted, then what was accepted a moment ago gets to its handler, which closes it:
        # asyncio leaves a socket open that it has accepted when it finds the server closed.
        for listening in server.sockets:
            with suppress(NotImplementedError):
                self._loop.remove_reader(listening.fileno())
        for _ in range(4):
            await asyncio.sleep(0)
        server.close()
        await self.shut_down()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
