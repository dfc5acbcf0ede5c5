"""A server of a few lines that sends exactly the bytes it is given, for answers that no decent server gives."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

Answer = Callable[[socket.socket], None]


class RawServer:
    """Answers the n-th connection with the n-th answer, and the last one from then on; one request a connection."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> RawServer:
        self._accepting.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._stopped.set()
        with socket.create_connection(self._listener.getsockname()):
            pass  # wakes accept()
        self._accepting.join()
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stopped.is_set():
                connection.close()
                return
            answer = self._answers[min(len(self._threads), len(self._answers) - 1)]
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, answer), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, answer: Answer) -> None:
        with connection:
            try:
                self.requests.append(_request(connection))
                answer(connection)
                if connection.fileno() >= 0:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(2**16):
                        pass
            except OSError:
                return


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = lengths[0] if lengths else 0
    while len(body) < length:
        body += _more(connection)
    return head + b"\r\n\r\n" + body


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(2**16)
    if not data:
        raise ConnectionError("the client closed amid its request")
    return data


def sends(*parts: bytes, reset: bool = False) -> Answer:
    """Write these bytes one after the other; then close, or reset."""

    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    return answer


def head(status: str = "200 OK", kind: str = "text/event-stream", **headers: str) -> bytes:
    """A response's head; its body ends with the connection."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def stream(*events: bytes) -> Answer:
    """An event stream of these bytes, ended by closing the connection."""
    return sends(head(), *events)


def chunks(*parts: bytes, end: bool = True) -> Sequence[bytes]:
    """The parts as HTTP chunks."""
    return [b"%x\r\n%b\r\n" % (len(part), part) for part in parts] + [b"0\r\n\r\n"] * end
