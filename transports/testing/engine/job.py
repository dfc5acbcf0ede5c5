"""One output under way: how far it is decoded, what of it the HTTP side may take, and how it ends early.

Its script is written for the end that the model had in mind.  If it ends otherwise (aborted, shed), the output is made
again from the part of the script that remains.  Knows no other output, no clock and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..script import Finish
from ..trim import head
from ..wire import output_of

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Script
    from .asked import Asked
    from .fault import Fault


class Job:
    """One output under way."""

    def __init__(self, asked: Asked, script: Script, profile: Profile, fault: Fault, index: int, interval: int) -> None:
        self.script: Script = script
        self.rid: str = asked.rid
        self.index: int = index
        self.ended: bool = False
        self.client_gone: bool = False
        self.abort_asked: bool = False
        self.decoded: int = 0
        self.fault = fault
        self._profile = profile
        self._interval = asked.interval or interval
        self._output = output_of(script, profile, index)
        self._sent = 0
        self._history: list[int] = []
        self.wake: asyncio.Event = asyncio.Event()
        self.on_chunk: Callable[[], None] = lambda: None

    @property
    def stalled(self) -> bool:
        """Nothing more will come, whatever happens."""
        return self.fault.stall_after is not None and self.decoded >= self.fault.stall_after

    @property
    def failed(self) -> bool:
        """The server raised instead of decoding the next token."""
        return self.fault.error is not None and self.decoded >= self.fault.error_after

    @property
    def pending(self) -> bool:
        """A chunk waits for the HTTP side."""
        return self._output.pending

    @property
    def retracted(self) -> bool:
        """Back in the waiting queue."""
        return self.fault.retract_after is not None and self.decoded >= self.fault.retract_after

    def take(self) -> list[dict[str, Any]]:
        """What the reader gets now."""
        self._history.append(-1)
        chunks = self._output.take()
        self.wake.set()
        return chunks

    def step(self) -> int:
        """Decode one token, and hand over what the stream interval lets through; 0 if there was none to decode."""
        total = len(self.script.token_ids)
        new = min(1, total - self.decoded)
        self.decoded += new
        self.ended = self.decoded == total
        unsent = self.decoded - self._sent
        if self.ended or self._interval <= 1 or self._sent == 0 or unsent >= self._interval:
            self._send(unsent, last=self.ended)
        return new

    def shed(self) -> None:
        """Stop before the first token, as an overloaded server does."""
        self._end(head(self.script, 0, Finish.overloaded()))
        self._output.abort()
        self.on_chunk()

    def abort(self) -> None:
        """Stop as ``/abort_request`` makes it stop: at once in the queue, one token later while running."""
        if self.client_gone or self.stalled:
            self.ended = True
            return
        if self.decoded == 0 or self.retracted:
            self._end(head(self.script, self._sent, Finish.queue_abort()))
            self._output.abort()
            self.on_chunk()
            return
        self.decoded = min(self.decoded + 1, len(self.script.token_ids))
        self._end(head(self.script, self.decoded, Finish.aborted()))
        self._send(self.decoded - self._sent, last=True)

    def _send(self, tokens: int, *, last: bool) -> None:
        self._output.send(tokens, last=last and self.script.finish.how != "unfinished")
        self._history.append(tokens)
        self._sent += tokens
        self.on_chunk()

    def _end(self, script: Script) -> None:
        # The script was made with another end in view: its state is made again, step by step, for the end that came.
        self.ended = True
        self.script = script
        self._output = output_of(script, self._profile, self.index)
        for tokens in self._history:
            if tokens < 0:
                self._output.take()
            else:
                self._output.send(tokens, last=False)
