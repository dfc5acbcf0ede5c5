"""A blocking stream: :mod:`._stream` for clients without an event loop.

No cancellation reaches blocking code, only exceptions in it, ``KeyboardInterrupt`` included; leaving the block cleans
up in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from .abort import abort_body, abort_headers, abort_refused, worker_urls
from .answer import BODY_LIMIT, Head, refused
from .errors import TransportError
from .folding import Folding
from .retry import backoff

if TYPE_CHECKING:
    from ssefold import Accumulator, Snapshot, StreamError, Update

    from .exchange import SyncClient, SyncExchange
    from .metrics import StreamMetrics
    from .options import Options
    from .request import PreparedRequest


class SyncGenerateStream:
    """One ``/generate`` call, blocking::

        with generate(client, url, payload) as stream:
            for update in stream:
                ...

    Everything is as in :class:`GenerateStream`; times are kept as far as the client's own timeouts go.
    """

    def __init__(self, client: SyncClient, request: PreparedRequest, options: Options) -> None:
        self._client = client
        self._request = request
        self._options = options
        self._folding = Folding(options, request)
        self._exchange: SyncExchange | None = None
        self._may_run = False
        self._released = False
        self._ends_by: float | None = None
        self._lock = threading.Lock()

    # ---- what came

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """Everything that has arrived, by index; may be ahead of the updates that were iterated over."""
        return self._folding.outputs

    @property
    def metrics(self) -> StreamMetrics:
        """Times and counts so far."""
        return self._folding.metrics

    @property
    def rid(self) -> str | tuple[str, ...]:
        """The request's id; a tuple if the payload gave a list."""
        return self._request.rid

    def snapshot(self) -> dict[int, Snapshot]:
        """A frozen copy of every output, to keep or to send elsewhere."""
        return self._folding.snapshots()

    # ---- the block

    def __enter__(self) -> SyncGenerateStream:
        if self._exchange is not None:
            raise RuntimeError("a stream is entered once; call generate() again for another request")
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> SyncGenerateStream:
        return self

    def __next__(self) -> Update:
        while True:
            update = self._folding.next()
            if update is not None:
                return update
            if self._folding.ended:
                raise StopIteration
            self._read_on()

    def abort(self) -> None:
        """Ask the server to stop, and read on to the terminal chunk, which alone carries the replay arrays.

        May be called from another thread than the one that iterates.

        :raises TransportError: the server could not be asked.
        :raises StreamError: the stream failed on its way to the end.
        """
        self._entered()
        ids = self._folding.ids_to_abort()
        if ids and not self._folding.over:
            timeout = self._options.abort_timeout
            self._tell(ids, timeout, patience=timeout)
        while not self._folding.over:
            self._read_on()
        if self._folding.failure is not None:
            raise self._folding.failure

    # ---- reading

    def _read_on(self) -> None:
        reads_already = self._lock.locked()
        with self._lock:
            if reads_already:
                return  # another thread has read meanwhile
            if self._released:
                raise RuntimeError("the stream was left; what came is in .outputs")
            self._read_once()

    def _read_once(self) -> None:
        folding = self._folding
        if folding.says_done:
            # Only the end of the body is missing; a server that sends other things instead is not listened to for ever.
            self._ends_by = self._ends_by or time.monotonic() + self._options.abort_timeout
            if time.monotonic() > self._ends_by:
                folding.end()
                return
        try:
            data = self._entered().read()
        except TransportError as error:
            folding.broke(error)
        else:
            if data:
                folding.received(data)
            else:
                folding.end()
        shed = folding.shed()
        if shed is not None and self._attempts_left():
            self._may_run = False
            self._entered().close()
            self._wait_to_retry(shed)
            self._open()

    # ---- opening

    def _open(self) -> None:
        while True:
            try:
                self._attempt()
            except TransportError as error:
                if error.retryable and self._attempts_left():
                    self._entered().close()
                    self._wait_to_retry(error)
                    continue
                self._folding.broke(error)
                raise
            return

    def _attempt(self) -> None:
        self._folding.attempt()
        exchange = self._exchange = self._client.exchange(self._options.idle_timeout)
        self._may_run = True
        try:
            head = exchange.open(self._request)
        except TransportError as error:
            self._may_run = not error.retryable
            raise
        self._folding.emit("response", status=head.status, attempt=self._folding.metrics.attempts)
        if not head.is_stream:
            self._may_run = False
            raise refused(head, self._start_of_body(exchange, head), self._request.place)

    def _start_of_body(self, exchange: SyncExchange, head: Head) -> bytes:
        if head.status == 503 and self._attempts_left():
            return b""  # an unread answer closes its connection: the next attempt gets a fresh one
        body = b""
        ends_by = time.monotonic() + self._options.abort_timeout
        try:
            while len(body) < BODY_LIMIT and time.monotonic() < ends_by and (data := exchange.read()):
                body += data
        except TransportError:
            pass  # the status says more than how its explanation broke off
        return body

    def _attempts_left(self) -> bool:
        return self._folding.metrics.attempts <= self._options.retries

    def _wait_to_retry(self, error: StreamError) -> None:
        attempt = self._folding.metrics.attempts
        delay = backoff(attempt)
        self._folding.emit("retry", attempt=attempt, delay=delay, error=error)
        time.sleep(delay)

    # ---- leaving

    def close(self) -> None:
        """Leave the stream; what ``with`` does at its end.  May be called again."""
        if self._released:
            return
        self._released = True
        exchange = self._exchange
        if exchange is None:
            return
        folding, timeout = self._folding, self._options.abort_timeout
        ids = folding.ids_to_abort() if self._may_run and self._options.on_cancel != "disconnect" else []
        told = False
        try:
            told = not ids or self._try_to_tell(ids, timeout * 3 / 4, patience=timeout / 4)
        finally:
            exchange.close()
        if not told:
            self._try_to_tell(ids, timeout / 4, patience=timeout / 4, last=True)
        folding.emit("close", metrics=folding.metrics, complete=folding.complete, error=folding.failure)

    def _try_to_tell(self, ids: list[str], timeout: float, *, patience: float, last: bool = False) -> bool:
        try:
            self._tell(ids, timeout, patience=patience)
        except TransportError as error:
            if last:
                self._folding.emit("abort_failed", ids=tuple(ids), error=error)
            return False
        return True

    def _tell(self, ids: list[str], timeout: float, *, patience: float) -> None:
        request, headers = self._request, abort_headers(self._request)
        ends_at = time.monotonic() + timeout

        def call(method: str, url: str, body: bytes) -> tuple[int, bytes]:
            left = ends_at - time.monotonic()
            if left <= 0:
                raise TransportError(f"abort_timeout={self._options.abort_timeout} s were not enough for {url}")
            return self._client.call(method, url, body, headers, timeout=left, patience=min(patience, left))

        self._folding.emit("abort", ids=tuple(ids), on_cancel=self._options.on_cancel)
        urls = [request.sibling("abort_request")]
        if self._options.on_cancel == "router":
            answer = call("GET", request.sibling("workers"), b"")
            urls = worker_urls(*answer, request.place)
        for url in urls:
            for rid in ids:
                status, body = call("POST", url, abort_body(rid))
                if status != 200:
                    raise abort_refused(status, body, url)

    def _entered(self) -> SyncExchange:
        if self._exchange is None:
            raise RuntimeError("enter the stream first: with generate(...) as stream")
        return self._exchange
