"""A sample over several servers: when one dies or sheds it, the next one resumes it.

This module only decides which failures another server may cure.  Errors that another server would repeat are raised: a
stream that contradicts itself, a request that the server refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from ssefold import IncompleteStreamError, ServerError, StreamError, Update
from ssefold.transports import TransportError
from ssefold.transports._engine import printable_url, without_urls

from .errors import FailoverError, RolloutError
from .sample import RolloutSample

#: Opens a stream for a url and a payload: ``generate`` of one of ``ssefold.transports``, with client and options set.
Transport = Callable[[str, dict[str, Any]], AbstractAsyncContextManager[AsyncIterator[Update]]]

#: HTTP status of an answer after which another server may do better.
_ELSEWHERE = frozenset({408, 425, 429})


async def run(
    sample: RolloutSample, endpoints: Sequence[str], transport: Transport, *, attempts: int = 1
) -> RolloutSample:
    """Make calls until the sample is done, or aborted.

    A call that fails because of its server (no connection, a broken or silent one, status 429 or 5xx, an error event
    that is not the request's fault, an abort with status 503, a body that ends early) is followed by one to the next
    endpoint, which resumes the sample.  Tokens that cannot be resumed (without the top-p rows
    that were asked for, or in the middle of a grammar) are sampled again.  ``sample.calls`` says which tokens came from
    where.

    :param endpoints: URLs of servers, taken in turn, as ``http://host:port`` or with the path; read anew for each call,
        so that a list may be kept up to date meanwhile.  User, password and query are in no message and no record.
    :param transport: opens a stream for a url and a payload.
    :param attempts: how many calls may be made; the default of one is no failover.
    :returns: the sample that was given.
    :raises FailoverError: the last attempt failed as well; with one attempt, the failure itself.
    :raises StreamError: what another server would repeat; the sample keeps the tokens before it.
    :raises RolloutError: no endpoints, or attempts is no whole number from 1.
    """
    if type(attempts) is not int or attempts < 1:
        raise RolloutError(f"attempts must be a whole number from 1, found {attempts!r:.80}")
    failures: list[tuple[str, StreamError]] = []
    while not sample.done:
        if not endpoints:
            raise RolloutError("endpoints is empty: there is no server to ask")
        endpoint = endpoints[len(failures) % len(endpoints)]
        try:
            await _call(sample, endpoint, transport)
        except StreamError as error:
            if not _elsewhere(error):
                raise
            failures.append((printable_url(endpoint), error))
            if len(failures) < attempts:
                continue
            if attempts == 1:
                raise
            raise FailoverError(
                _account(sample, failures, endpoints), failures=failures, partial=error.partial
            ) from error
        if sample.status == "aborted":
            break
    return sample


async def _call(sample: RolloutSample, endpoint: str, transport: Transport) -> None:
    try:
        payload = sample.next_payload(source=endpoint)
    except RolloutError:
        # What the last call left cannot be built on.
        sample.rollback()
        payload = sample.next_payload(source=endpoint)
    async with transport(_generate_url(endpoint), payload) as stream:
        async for update in stream:
            sample.apply(update)
    reason = sample.finish_reason
    if reason is not None and reason.retryable:
        raise ServerError(
            f"the server shed the request: {reason.message} (status {reason.status_code})",
            message=reason.message or "",
            code=reason.status_code,
        )


def _elsewhere(error: StreamError) -> bool:
    """May another server succeed?"""
    if isinstance(error, TransportError):
        status = error.status_code
        return status is None or status >= 500 or status in _ELSEWHERE
    if isinstance(error, ServerError):
        code = error.code
        # Without a code the cause is unknown; servers send 400 when the request is wrong.
        return not isinstance(code, int) or code >= 500 or code in _ELSEWHERE
    return isinstance(error, IncompleteStreamError)


def _account(sample: RolloutSample, failures: Sequence[tuple[str, StreamError]], endpoints: Sequence[str]) -> str:
    tried = "; ".join(
        f"{place}: {type(error).__name__}: {without_urls(str(error), *endpoints)[:160]}"
        for place, error in failures[-4:]
    )
    return (
        f"{len(failures)} attempts failed, the sample has {len(sample.token_ids)} tokens and can be resumed:"
        f" {tried}. Raise attempts, or look at the servers"
    )


def _generate_url(endpoint: str) -> str:
    return endpoint if urlsplit(endpoint).path not in ("", "/") else endpoint.rstrip("/") + "/generate"
