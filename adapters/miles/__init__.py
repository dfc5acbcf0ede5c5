"""miles: ``--custom-generate-function-path ssefold.adapters.miles.generate``.

The single-turn generate function of miles, streamed: every chunk is added to the sample as it arrives, so that an abort
or a cancellation loses nothing.  What it takes from miles is looked up when it runs, and can be replaced by setting it
as an attribute of this module.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from ssefold import GenerateDecoder

from .._call import Exchange, Lookup
from . import attempts
from .request import check_sample, request_of
from .sample import MilesCall

__all__ = ["generate"]

_log = logging.getLogger("ssefold.adapters.miles")

_UTILS = ("miles.rollout.generate_utils.generate_endpoint_utils",)
#: What is miles', and where it lives; ``compute_routing_headers`` is used where there is one.
_MILES = {
    "GenerateFnOutput": ("miles.rollout.base_types",),
    "http_utils": ("miles.utils.http_utils",),
    "compute_prompt_ids_from_sample": _UTILS,
    "compute_request_payload": _UTILS,
    "compute_routing_headers": _UTILS,
    "update_sample_from_response": _UTILS,
}
_miles = Lookup("miles", "github.com/radixark/miles", globals(), _MILES)
__getattr__: Callable[[str], Any] = _miles.own


async def generate(input: Any) -> Any:
    """Generate a response for ``input.sample``, from where it stands.

    :param input: miles' ``GenerateFnInput``; neither it nor its ``sampling_params`` are changed.
        ``input.args.ssefold_abort`` (``"disconnect"``; ``"direct"``, ``"router"``): how the server is freed when the
        call is cancelled or aborted; ``ssefold_abort_timeout`` (5): seconds that it may take then, up to its terminal
        chunk, and that the rest of the body may take after the ``finish_reason``; ``ssefold_fast_path`` (True): see
        :class:`~ssefold.GenerateDecoder`.
    :returns: miles' ``GenerateFnOutput``, with the sample that was given, changed in place.
    :raises AssertionError: the sample's status, the budget or the http client is not what it must be, or a check of
        miles' own fails.
    :raises ValueError: the stream, the server's in-band error, the sample or the payload cannot be used; see
        ``ssefold.StreamError``.
    :raises RuntimeError: the stream ended without a ``finish_reason``.
    """
    args, sample, state = input.args, input.sample, input.state
    status = type(sample).Status
    if sample.status not in (status.PENDING, status.ABORTED):
        raise AssertionError(f"Sample status is {sample.status}")
    check_sample(sample)
    params: dict[str, Any] = copy.deepcopy(input.sampling_params)
    prompt_ids, payload = request_of(_miles, args, state, sample, params, evaluation=input.evaluation)
    output = _miles["GenerateFnOutput"]
    if payload is None:
        sample.status = status.TRUNCATED
        return output(samples=sample)
    headers_of = _miles.optional("compute_routing_headers")
    headers = None if headers_of is None else headers_of(args, sample)
    http_utils = _miles["http_utils"]
    if http_utils._http_client is None:
        raise AssertionError("http client not initialized; call init_http_client first")
    if getattr(http_utils, "_distributed_post_enabled", False):
        _log.warning("--use-distributed-post: responses are streamed by this process, not by miles' actors")
    if not sample.tokens:
        sample.tokens = list(prompt_ids)
    for attempt in range(1, attempts.ATTEMPTS + 1):
        call = _Call(args, sample, {**payload, "rid": uuid.uuid4().hex}, headers, state, http_utils._http_client)
        try:
            await call.run()
            break
        except Exception as error:
            if attempt == attempts.ATTEMPTS or state.aborted or not call.may_be_repeated(error):
                raise
            _log.info("attempt %d of %d failed: %r", attempt, attempts.ATTEMPTS, error)
        await asyncio.sleep(attempts.PAUSE)
    return output(samples=sample)


class _Call:
    """One request, and what it leaves on the sample."""

    def __init__(
        self, args: Any, sample: Any, payload: dict[str, Any], headers: dict[str, str] | None, state: Any, client: Any
    ) -> None:
        def decode(token_ids: Sequence[int]) -> str:
            skip = payload["sampling_params"].get("skip_special_tokens", True)
            text: str = state.tokenizer.decode(list(token_ids), skip_special_tokens=skip)
            return text

        self._sample = sample
        self._state = state
        self._decoder = GenerateDecoder(fast_path=getattr(args, "ssefold_fast_path", True))
        self._onto = MilesCall(args, sample, payload, _miles["update_sample_from_response"], decode)
        self._exchange = Exchange(args, client, payload, headers, self._decoder)

    async def run(self) -> None:
        """Stream the response onto the sample.

        :raises StreamError: what the body says does not fit, the server reports an error, or the body is not whole.
        """
        status = self._sample.status
        try:
            async with aclosing(self._exchange.updates()) as updates:
                async for update in updates:
                    self._onto.apply(update)
                    if update.finish_reason is not None:
                        await self._onto.end(self._decoder.outputs[0])
                    elif self._state.aborted:
                        await self._exchange.stop()
            if not self._onto.ended and not self._state.aborted:
                raise self._exchange.incomplete()
        except BaseException:
            if not self._onto.ended:
                await self._keep_what_came()
                self._sample.status = status
            raise
        if not self._onto.ended:
            await self._onto.cut(self._decoder.outputs.get(0))
            self._sample.status = type(self._sample).Status.ABORTED

    def may_be_repeated(self, error: Exception) -> bool:
        """Nothing has arrived, and another attempt may do better."""
        return not self._onto.received and attempts.worth_another(error, from_client=error is self._exchange.lost)

    async def _keep_what_came(self) -> None:
        try:
            await self._onto.cut(self._decoder.outputs.get(0))
        except Exception:  # noqa: BLE001  # the first error is the one to raise
            _log.exception("what had arrived of a response that was cut could not be put onto the sample")
