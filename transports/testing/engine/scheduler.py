"""The scheduler of a fake server: which outputs run, which wait, and which were aborted.

One task decodes each output, token by token, through a gate that a test can close; what it makes waits in the job until
the HTTP side takes it.  The account of what is still being decoded, and for whom, is kept here.  This module knows
nothing of HTTP or of bytes; everything in it runs on the server's own event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job import Job


@dataclass
class Counters:
    """What the server counts.

    :ivar requests: ``/generate`` calls; :ivar outputs: what they asked for, ``n`` samples and batches counted singly.
    :ivar tokens: decoded in all; :ivar bytes_sent: of ``/generate`` bodies.
    :ivar running: outputs being generated or queued; :ivar orphans: those of them whose client has disconnected.
    :ivar finished: outputs that ended normally; :ivar aborted: that were aborted; :ivar orphaned: that were
        generated to their end after their client had disconnected.
    :ivar disconnects: requests whose client disconnected before the end; :ivar abort_requests: ``/abort_request``
        calls.
    :ivar connections: sockets open now; :ivar accepted: connections so far; :ivar slow_clients: that the server waits
        for before it can send more.
    """

    requests: int = 0
    outputs: int = 0
    tokens: int = 0
    bytes_sent: int = 0
    running: int = 0
    orphans: int = 0
    finished: int = 0
    aborted: int = 0
    orphaned: int = 0
    disconnects: int = 0
    abort_requests: int = 0
    connections: int = 0
    accepted: int = 0
    slow_clients: int = 0


class Scheduler:
    """All outputs of one server.

    :param lockstep: decode the next token only when the last chunk was taken (a reader that keeps pace); otherwise
        decoding continues, and chunks that are not read in time are joined or dropped, as in that version.
    :param frees_on_disconnect: a disconnect aborts the client's outputs.
    """

    def __init__(
        self,
        *,
        token_delay: float,
        lockstep: bool,
        max_running: int | None,
        frees_on_disconnect: bool,
        changed: Callable[[], None],
    ) -> None:
        self.counters: Counters = Counters()
        self._token_delay = token_delay
        self._lockstep = lockstep
        self._max_running = max_running
        self._frees_on_disconnect = frees_on_disconnect
        self._changed = changed
        self._held_after: int | None = None
        self._known: dict[str, Job] = {}
        self._jobs: dict[Job, asyncio.Task[None]] = {}
        self._started = 0

    # ---- requests

    def knows(self, rid: str) -> bool:
        """The id is in use."""
        return rid in self._known

    def submit(self, jobs: Iterable[Job]) -> None:
        """Start decoding."""
        for job in jobs:
            self.counters.outputs += 1
            self.counters.running += 1
            self._known[job.rid] = job
            self._jobs[job] = asyncio.get_running_loop().create_task(self._decode(job))
        self._changed()

    def release_ids(self, jobs: Iterable[Job]) -> None:
        """The response is complete."""
        for job in jobs:
            self._known.pop(job.rid, None)

    def client_gone(self, jobs: Iterable[Job]) -> None:
        """The client went before the end (``create_abort_task``, ``_release_req_states_on_failure``)."""
        self.counters.disconnects += 1
        for job in jobs:
            if job.ended:
                continue
            job.client_gone = True
            self.counters.orphans += 1
            if self._frees_on_disconnect:
                job.abort_asked = True
            job.wake.set()
        self._changed()

    def abort(self, rid: str, *, abort_all: bool) -> None:
        """``/abort_request``: an unknown id is ignored, a known one stops every request whose id starts with it."""
        self.counters.abort_requests += 1
        if abort_all or rid in self._known:
            for job in self._jobs:
                if abort_all or job.rid.startswith(rid):
                    job.abort_asked = True
                    job.wake.set()
        self._changed()

    # ---- the gate

    def hold(self, after: int) -> None:
        """Decode no output beyond so many tokens."""
        self._held_after = after

    def release(self) -> None:
        """Open the gate."""
        self._held_after = None
        self._wake_all()

    def _wake_all(self) -> None:
        for job in self._jobs:
            job.wake.set()

    # ---- decoding

    async def _decode(self, job: Job) -> None:
        try:
            await self._until(job, lambda: self._max_running is None or self._started < self._max_running)
            if job.abort_asked:
                job.abort()
                return
            self._started += 1
            try:
                await self._run(job)
            finally:
                self._started -= 1
        finally:
            self._ended(job)

    async def _run(self, job: Job) -> None:
        if job.fault.overloaded:
            job.shed()
            return
        while not job.ended:
            await self._until(job, lambda: not self._blocked(job))
            if self._token_delay:
                await asyncio.sleep(self._token_delay)
            if job.abort_asked:
                job.abort()
                return
            if job.failed:
                return
            self.counters.tokens += job.step()
            self._changed()
            if not job.pending:
                await asyncio.sleep(0)

    def _blocked(self, job: Job) -> bool:
        if self._held_after is not None and job.decoded >= self._held_after:
            return True
        if job.retracted or job.stalled:
            return True
        return self._lockstep and job.pending and not job.client_gone

    async def _until(self, job: Job, free: Callable[[], bool]) -> None:
        while not (job.abort_asked or free()):
            job.wake.clear()
            await job.wake.wait()

    def _ended(self, job: Job) -> None:
        job.ended = True
        del self._jobs[job]
        counters = self.counters
        counters.running -= 1
        counters.orphans -= job.client_gone
        if job.abort_asked:
            counters.aborted += 1
        elif job.client_gone:
            counters.orphaned += 1
        else:
            counters.finished += 1
        job.on_chunk()
        if self._max_running is not None:
            self._wake_all()
        self._changed()

    async def stop(self) -> None:
        """End everything, without ceremony."""
        tasks = list(self._jobs.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
