"""One request and its response, read no further than asked.

Nothing is read ahead, and updates are yielded one at a time even if one read has several, so that the caller may stop
after any of them.  When the output has its ``finish_reason``, or the caller has asked the server to stop, the rest
of the body is waited for within a bound.  Knows nothing of samples.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ssefold import FinishReason, GenerateDecoder, IncompleteStreamError, ProtocolError, StreamError, Update

from .body import body_of
from .freeing import Freeing
from .waiting import within

_log = logging.getLogger("ssefold.adapters")

_PATIENCE = 5.0


class Exchange:
    """A ``POST /generate`` for one output.

    :param args: the framework's arguments: where the router is, ``ssefold_abort`` (how the server is freed) and
        ``ssefold_abort_timeout`` (seconds that it may take then, and after the ``finish_reason``).
    :param payload: sent as it is; its ``rid`` names the request to the server.
    :param prepare: applied to every read before it is decoded.
    :raises ValueError: an option has no meaning.

    :ivar finish_reason: set by the terminal update.
    :ivar lost: the client's own exception that ended the response, if one did.
    """

    def __init__(
        self,
        args: Any,
        client: Any,
        payload: dict[str, Any],
        headers: dict[str, str] | None,
        decoder: GenerateDecoder,
        prepare: Callable[[bytes], bytes] | None = None,
    ) -> None:
        base_url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
        self.finish_reason: FinishReason | None = None
        self.lost: Exception | None = None
        self._seconds = _seconds_of(args)
        how = getattr(args, "ssefold_abort", "disconnect")
        self._freeing = Freeing(client, base_url, payload["rid"], how, self._seconds)
        self._client = client
        self._url = f"{base_url}/generate"
        self._payload = payload
        self._headers = headers
        self._decoder = decoder
        self._prepare = prepare
        # Loop time up to which the rest of the body is waited for; None while there is no bound.
        self._until: float | None = None

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Send the request, and yield its updates one at a time.

        :raises StreamError: what the body says does not fit, or the server reports an error.
        """
        try:
            async with self._client.stream("POST", self._url, json=self._payload, headers=self._headers) as response:
                response.raise_for_status()
                try:
                    async with aclosing(body_of(response)) as body:
                        while (data := await self._read(body)) is not None:
                            for update in self._decoder.feed(data if self._prepare is None else self._prepare(data)):
                                yield self._taken(update)
                            if self._decoder.error is not None:
                                raise self._decoder.error
                finally:
                    # Before the response is closed: a server forgets the id of a client that has gone.
                    await self._free()
        except asyncio.CancelledError:
            await self._free()  # cancelled before there was a response to close
            raise
        except StreamError:
            raise
        except Exception as error:
            self.lost = error
            raise

    async def stop(self) -> None:
        """Ask the server to stop, and wait for the terminal chunk no longer than ``ssefold_abort_timeout``."""
        if self._until is None:
            self._wait_for_the_rest()
            await self._free()

    def incomplete(self) -> StreamError:
        """Why the body ended without a ``finish_reason``, once it has."""
        try:
            self._decoder.close()
        except StreamError as error:
            return error
        return IncompleteStreamError("the body ended without a terminal finish_reason")

    def _taken(self, update: Update) -> Update:
        if update.index:
            raise ProtocolError(f"index {update.index} came in the answer to a request for one output")
        if update.finish_reason is not None:
            self.finish_reason = update.finish_reason
            self._wait_for_the_rest()
        return update

    async def _read(self, body: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next bytes; None at the end of the body, or of what is waited for."""
        if self._until is None:
            return await anext(body, None)
        left = self._until - asyncio.get_running_loop().time()
        try:
            return await within(left, _next(body)) if left > 0 else None
        except Exception as error:  # noqa: BLE001  # whatever the client raises: nothing more was needed
            _log.info("the rest of the response to %s did not come: %r", self._payload["rid"], error)
            return None

    def _wait_for_the_rest(self) -> None:
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds

    async def _free(self) -> None:
        if self.finish_reason is None:
            await self._freeing.now()


def _seconds_of(args: Any) -> float:
    seconds = getattr(args, "ssefold_abort_timeout", _PATIENCE)
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ValueError(f"args.ssefold_abort_timeout must be a number of seconds above 0, not {seconds!r}")
    return float(seconds)


async def _next(body: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(body, None)
