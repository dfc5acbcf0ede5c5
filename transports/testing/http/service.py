"""One ``/generate`` request of a fake server, from its payload to the last byte of its answer.

It takes the outputs' chunks from the scheduler, adds ``index`` where the request was list-shaped, and writes them.  It
also handles a client that disconnects, a server that fails, and the ends that a fault asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..engine import NO_FAULT, Asked, Job, Request, SchemaError, StumbleError, check_length, check_shape, read_request
from ..wire import DONE, HTTPFailureError, StreamFailedError, dumps, event, nonstream
from .connection import ClosedError
from .writer import BodyWriter, CutError

if TYPE_CHECKING:
    from ..engine import Fault, Model, Scheduler
    from ..profiles import Profile
    from ..script import Script
    from .connection import Connection


class GenerateService:
    """Serves ``/generate`` for one scheduler, model and profile."""

    def __init__(
        self, scheduler: Scheduler, model: Model, profile: Profile, *, interval: int, context_length: int
    ) -> None:
        self._scheduler = scheduler
        self._model = model
        self._profile = profile
        self._interval = interval
        self._context_length = context_length

    def truth(self, payload: Mapping[str, Any]) -> list[Script]:
        """What the model answers, output by output."""
        return [self._model(asked) for asked in self._read(payload).outputs]

    def response(self, payload: Mapping[str, Any]) -> Any:
        """The JSON of the non-streaming response."""
        return nonstream(self.truth(payload), self._profile, listed=read_request(payload).listed)

    async def serve(self, connection: Connection, payload: Any, fault: Fault) -> bool:
        """Answer one request; False: the connection is of no more use."""
        self._scheduler.counters.requests += 1
        if fault.refuse:
            return False
        if fault.silent:
            await connection.closed()
            return False
        if fault.status != 200:
            await connection.answer(fault.status, fault.body, {"content-type": "application/json", **fault.headers})
            return True
        if not isinstance(payload, Mapping):
            await connection.answer(400, b'{"error":"the body must be a JSON object"}')
            return True
        try:
            check_shape(payload)
        except SchemaError as error:
            problem = {"object": "error", "message": str(error), "type": "Bad Request", "param": None, "code": 400}
            await connection.answer(400, dumps(problem))
            return True
        if not payload.get("stream"):
            return await self._whole(connection, payload)
        return await self._stream(connection, payload, fault)

    async def _whole(self, connection: Connection, payload: Mapping[str, Any]) -> bool:
        try:
            request, jobs = self._jobs(payload, None)
        except ValueError as error:
            await connection.answer(400, dumps({"error": {"message": str(error)}}))
            return True
        except StumbleError:
            await connection.answer(500, b"Internal Server Error", {"content-type": "text/plain; charset=utf-8"})
            return True
        self._scheduler.submit(jobs)
        watch = asyncio.ensure_future(connection.closed())
        try:
            for job in jobs:
                while not job.ended and not watch.done():
                    if job.pending:
                        job.take()
                    await _either(job, watch)
            if watch.done():
                self._scheduler.client_gone(jobs)
                return False
            try:
                response = nonstream([job.script for job in jobs], self._profile, listed=request.listed)
            except HTTPFailureError as failure:
                await connection.answer(failure.status, dumps(failure.body))
            else:
                await connection.answer(200, dumps(response))
            return True
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._scheduler.release_ids(jobs)

    async def _stream(self, connection: Connection, payload: Mapping[str, Any], fault: Fault) -> bool:
        body = BodyWriter(connection, fault, self._count)
        await body.start()
        try:
            request, jobs = self._jobs(payload, fault)
        except ValueError as error:
            await body.event(event({"error": self._error(str(error))}))
            await body.event(DONE)
            await body.end()
            return True
        except StumbleError:
            return False
        self._scheduler.submit(jobs)
        delivery = asyncio.ensure_future(_Delivery(jobs, body, self._profile, fault, listed=request.listed).run())
        watch = asyncio.ensure_future(connection.closed())
        try:
            await asyncio.wait([delivery, watch], return_when=asyncio.FIRST_COMPLETED)
            if not delivery.done():
                return False  # the client has gone
            try:
                return delivery.result()
            except CutError:
                return fault.cut == "clean"
            except ClosedError:
                return False
        finally:
            watch.cancel()
            delivery.cancel()
            await asyncio.gather(watch, delivery, return_exceptions=True)
            if not all(job.ended for job in jobs):
                self._scheduler.client_gone(jobs)
            self._scheduler.release_ids(jobs)

    def _jobs(self, payload: Mapping[str, Any], fault: Fault | None) -> tuple[Request, list[Job]]:
        request = self._read(payload)
        for asked, limit in zip(request.outputs, request.limits, strict=True):
            if self._scheduler.knows(asked.rid):
                raise ValueError(f"Duplicate request ID detected: {asked.rid}")
            check_length(len(asked.prompt_ids), limit, self._context_length)
        jobs = [
            Job(asked, self._model(asked), self._profile, fault or NO_FAULT, index, self._interval)
            for index, asked in enumerate(request.outputs)
        ]
        return request, jobs

    def _read(self, payload: Mapping[str, Any]) -> Request:
        """The request, with answers as long as the context allows (``scheduler.init_req_max_new_tokens``)."""
        request = read_request(payload)
        outputs: list[Asked] = []
        for asked in request.outputs:
            most = max(self._context_length - len(asked.prompt_ids) - 2, 0)
            outputs.append(replace(asked, max_new_tokens=most) if asked.max_new_tokens > most else asked)
        return replace(request, outputs=tuple(outputs))

    def _error(self, message: str) -> dict[str, Any]:
        if not self._profile.typed_errors:
            return {"message": message}
        return {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}

    def _count(self, size: int) -> None:
        self._scheduler.counters.bytes_sent += size


class _Delivery:
    """Writes the chunks of one request as they come."""

    def __init__(self, jobs: Sequence[Job], body: BodyWriter, profile: Profile, fault: Fault, *, listed: bool) -> None:
        self._jobs = jobs
        self._body = body
        self._profile = profile
        self._fault = fault
        self._with_index = listed or profile.family.startswith("grpc")
        self._ready = asyncio.Event()
        self._ready.set()  # something may have happened before anybody looked
        for job in jobs:
            job.on_chunk = self._ready.set

    async def run(self) -> bool:
        """Write everything; True if the connection may be used again."""
        try:
            await self._chunks()
        except StreamFailedError as failure:
            if failure.error is None:
                return False
            await self._body.event(event(failure.error))
        if any(job.script.finish.how == "unfinished" for job in self._jobs):
            return False
        if not self._fault.no_done:
            await self._body.event(DONE)
        if self._fault.endless:
            await asyncio.Event().wait()
        await self._body.end()
        return True

    async def _chunks(self) -> None:
        while True:
            self._ready.clear()
            wrote = False
            for job in self._jobs:
                if job.pending:
                    wrote = True
                    for chunk in job.take():
                        await self._write(job, chunk)
                if job.failed and self._fault.error is not None:
                    raise StreamFailedError({"error": dict(self._fault.error)})
            if wrote:
                continue
            if all(job.ended for job in self._jobs) and not any(job.stalled for job in self._jobs):
                return
            await self._ready.wait()

    async def _write(self, job: Job, chunk: dict[str, Any]) -> None:
        if self._fault.padding and chunk.get("meta_info", {}).get("finish_reason"):
            chunk = {**chunk, "meta_info": {**chunk["meta_info"], "padding": "x" * self._fault.padding}}
        if self._with_index:
            chunk = {**chunk, "index": job.index}
        await self._body.event(event(chunk))


async def _either(job: Job, watch: asyncio.Future[None]) -> None:
    """Wait for the job's next sign of life, or for the client to go."""
    ready = asyncio.Event()
    job.on_chunk = ready.set
    if job.pending or job.ended:
        return
    waiter = asyncio.ensure_future(_wait(ready))
    try:
        await asyncio.wait([waiter, watch], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
