"""One ``/generate`` call: attempts, aborts, and the steps of closing, in order.

The base class reads, :class:`.folding.Folding` folds the bytes, the exchange handles what is special about a client.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .abort import abort_body, abort_refused, worker_urls
from .answer import BODY_LIMIT, Head, failed, idle, is_stream, refused
from .encoding import undo_encoding
from .errors import TransportError
from .folding import Folding
from .retry import backoff
from .runtime import OutOfTime, in_time
from .update_stream import UpdateStream
from .url import printable_url, split_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from ssefold import StreamError

    from .exchange import Client, Exchange
    from .options import Options
    from .request import PreparedRequest


class GenerateStream(UpdateStream):
    """One ``/generate`` call::

        async with generate(client, url, payload) as stream:
            async for update in stream:
                ...

    Entering sends the request; leaving, in whatever way, closes the response exactly once and, unless all outputs are
    complete, frees the server as ``on_cancel`` says.  The partial result stays readable afterwards.

    :raises TransportError: on entering, and while iterating.
    :raises StreamError: while iterating, after the updates before it; ``.partial`` has the partial result.
    """

    def __init__(self, client: Client, request: PreparedRequest, options: Options) -> None:
        super().__init__(Folding(options, request), options, request.place, request.url)
        self._client = client
        self._request = request
        self._may_run = False
        self._may_be_shed = options.retries > 0
        self._untold: list[str] | None = None
        if options.on_cancel != "disconnect":
            self._before_cancelling = self._free

    @property
    def rid(self) -> str | tuple[str, ...]:
        """The request's id; a tuple if the payload gave a list."""
        return self._request.rid

    @property
    def abort_timeout(self) -> float:
        """Seconds that the abort and the closing may take."""
        return self._options.abort_timeout

    async def __aenter__(self) -> Self:
        if self._exchange is not None or self._released:
            raise RuntimeError("a stream is entered once; call generate() again for another request")
        self._reading = True  # an abort from another task waits for the answer
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._has_read()
        return self

    async def abort(self) -> None:
        """Ask the server to stop, and read on to the terminal chunk, which alone carries the replay arrays.

        The iteration returns the remaining updates as usual; ``outputs`` has them immediately.  The abort goes to the
        server, or to the router's workers with ``on_cancel="router"``.  Another task than the iterating one may call
        it.

        :raises TransportError: the server could not be asked.
        :raises StreamError: the stream failed on its way to the end.
        """
        folding, timeout = self._folding, self._options.abort_timeout
        _ = self._open_exchange
        ids = folding.ids_to_abort()
        if ids and not folding.over:
            refusal = await self._tell_in_time(ids, timeout, patience=timeout)
            if refusal is not None:
                refusal.partial = folding.snapshots()
                raise refusal
        while not folding.over:
            await self._read_on()
        if folding.failure is not None:
            raise folding.failure

    # ---- attempts

    async def _look_at_shed(self) -> None:
        folding = self._folding
        self._may_be_shed = not folding.handed_out
        shed = folding.shed() if self._may_be_shed else None
        if shed is not None and self._attempts_left:
            self._may_run = False
            await self._try_again(shed)
            await self._open()

    async def _open(self) -> None:
        while True:
            try:
                await self._attempt()
            except TransportError as error:
                if error.retryable and self._attempts_left:
                    await self._try_again(error, error.retry_after)
                    continue
                self._folding.broke(error)
                raise
            return

    async def _attempt(self) -> None:
        self._folding.attempt()
        exchange = self._client.exchange(self._options.idle_timeout)
        self._use(exchange)
        self._may_run = True
        try:
            head: Head | TransportError = await self._runtime.guarded(
                lambda: exchange.open(self._request),
                first=self._before_cancelling,
                seconds=self._options.idle_timeout,
            )
        except OutOfTime as error:
            head = idle(self._place, self._options.idle_timeout, error)
        except Exception as error:  # noqa: BLE001  # whatever a client raises
            head = self._error_of(error, began=False)
            self._may_run = not head.retryable
        if isinstance(head, TransportError):
            raise head  # here, so that the client's exception is no context of it
        self._folding.emit("response", status=head.status, attempt=self._folding.metrics.attempts)
        await self._check(exchange, head)

    async def _check(self, exchange: Exchange, head: Head) -> None:
        if is_stream(head):
            try:
                self._undo = undo_encoding(head.content_encoding)
            except ValueError:
                pass  # refused, by name
            else:
                return
        self._may_run = False
        raise refused(head, await self._start_of_body(exchange, head), self._place)

    async def _start_of_body(self, exchange: Exchange, head: Head) -> bytes:
        if head.status == 503 and self._attempts_left:
            return b""  # an unread answer closes its connection: the next attempt gets a fresh one
        parts: list[bytes] = []

        async def read() -> None:
            try:
                while sum(map(len, parts)) < BODY_LIMIT and (data := await exchange.read()):
                    parts.append(data)
            except Exception:  # noqa: BLE001  # the status says more than how its explanation broke off
                parts.append(exchange.rest())

        exchange.hurry(self._options.abort_timeout)
        await in_time(self._runtime, read, self._options.abort_timeout)
        return b"".join(parts)

    @property
    def _attempts_left(self) -> bool:
        return self._folding.metrics.attempts <= self._options.retries

    async def _try_again(self, error: StreamError, retry_after: float | None = None) -> None:
        await self._runtime.shielded(super()._leave)
        attempt = self._folding.metrics.attempts
        delay = backoff(attempt, retry_after)
        self._folding.emit("retry", attempt=attempt, delay=delay, error=error)
        await self._runtime.sleep(delay)

    # ---- leaving

    async def _leave(self) -> None:
        # Told before the response is closed: a server forgets the id of a client that has gone (abort.py).
        untold = await self._free()
        await super()._leave()
        if untold:
            timeout = self._options.abort_timeout / 4
            refusal = await self._tell_in_time(untold, timeout, patience=timeout)
            if refusal is not None:
                self._folding.emit("abort_failed", ids=tuple(untold), error=refusal)

    async def _free(self) -> list[str]:
        """Ask the server, once, to stop what it may still be generating; returns the ids without an abort."""
        if self._untold is None:
            self._folding.hold_events()
            ids = self._folding.ids_to_abort() if self._may_run and self._options.on_cancel != "disconnect" else []
            # A pool without a connection to spare may need ours, so not all of the time is spent on asking for another.
            timeout = self._options.abort_timeout
            refusal = await self._tell_in_time(ids, timeout * 3 / 4, patience=timeout / 4) if ids else None
            self._untold = [] if refusal is None else ids
        return self._untold

    async def _tell_in_time(self, ids: list[str], timeout: float, *, patience: float) -> TransportError | None:
        """Send the abort; returns the error, if there was one."""
        failures: list[TransportError] = []

        async def tell() -> None:
            try:
                async with self._client.gate.passed(self._runtime):
                    await self._tell(ids, monotonic() + timeout, patience=patience)
            except TransportError as error:
                failures.append(error)

        if not await in_time(self._runtime, tell, timeout):
            return self._too_late()
        return failures[0] if failures else None

    async def _tell(self, ids: list[str], ends_at: float, *, patience: float) -> None:
        request = self._request
        self._folding.emit("abort", ids=tuple(ids), on_cancel=self._options.on_cancel)
        urls, headers = [request.sibling("abort_request")], request.headers
        if self._options.on_cancel == "router":
            answer = await self._call("GET", request.sibling("workers"), b"", headers, ends_at, patience)
            urls, headers = worker_urls(*answer, request.place), request.own_headers
        for url in urls:
            for rid in ids:
                status, body = await self._call("POST", url, abort_body(rid), headers, ends_at, patience)
                if status != 200:
                    raise abort_refused(status, body, url)

    async def _call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], ends_at: float, patience: float
    ) -> tuple[int, bytes]:
        left = ends_at - monotonic()
        if left <= 0:
            raise self._too_late()
        bare_url, authorization = split_credentials(url)
        sent = {**headers, "accept": "*/*"}
        if authorization is not None:
            sent["authorization"] = authorization
        try:
            return await self._client.call(method, bare_url, body, sent, timeout=left, patience=min(patience, left))
        except Exception as error:  # noqa: BLE001  # whatever a client raises; a router may name anything as a worker
            failure = failed(error, self._client.judge(error), f"{method} {printable_url(url)}", url, began=False)
        raise failure

    def _too_late(self) -> TransportError:
        return TransportError(
            f"{self._place} did not answer the abort within abort_timeout={self._options.abort_timeout} s"
        )
