"""miles: ``--custom-generate-function-path ssefold.adapters.miles.generate``.

The single-turn generate function of miles, streamed: every chunk is on the sample as it comes, so that an abort or a
cancellation loses nothing.  What it takes from miles is looked up when it runs, and can be replaced by setting it as an
attribute of this module.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import Any

from ssefold import GenerateDecoder, IncompleteStreamError, ProtocolError, StreamError, Update

from .._call.body import body_of
from .._call.freeing import Freeing
from .._call.tokens import CallTokens
from .request import payload_of, prompt_ids_of
from .sample import MilesCall

__all__ = ["generate"]

_UTILS = "miles.rollout.generate_utils.generate_endpoint_utils"
#: What is miles', and where it lives; the last three are used where they are.
_MILES = {
    "GenerateFnOutput": "miles.rollout.base_types",
    "http_utils": "miles.utils",
    "compute_prompt_ids_from_sample": _UTILS,
    "compute_request_payload": _UTILS,
    "compute_routing_headers": _UTILS,
}


async def generate(input: Any) -> Any:
    """Generate a response for ``input.sample``, from where it stands.

    :param input: miles' ``GenerateFnInput``; neither it nor its ``sampling_params`` are changed.
        ``input.args.ssefold_abort`` (``"disconnect"``; ``"direct"``, ``"router"``): how the server is freed when the
        call is cancelled or aborted.
    :returns: miles' ``GenerateFnOutput``, with the sample that was given, changed in place.
    :raises AssertionError: the sample's status, the budget or the http client is not what it must be.
    :raises ValueError: the stream, the server's in-band error or the payload can not be used; see
        ``ssefold.StreamError``.
    :raises RuntimeError: the stream ended without a ``finish_reason``.
    """
    args, sample, state = input.args, input.sample, input.state
    status = type(sample).Status
    if sample.status not in (status.PENDING, status.ABORTED):
        raise AssertionError(f"Sample status is {sample.status}")
    params: dict[str, Any] = copy.deepcopy(input.sampling_params)
    prompt_ids = prompt_ids_of(state, sample, _own("compute_prompt_ids_from_sample"))
    input_ids = prompt_ids
    if sample.response_length or sample.response:
        input_ids = list(sample.tokens)
        params.setdefault("max_new_tokens", args.rollout_max_response_len)
        params["max_new_tokens"] -= len(input_ids) - len(prompt_ids)
        if params["max_new_tokens"] < 0:
            raise AssertionError(f"max_new_tokens: {params['max_new_tokens']} should not be less than 0")
    payload = None
    if params.get("max_new_tokens") != 0:
        own = _own("compute_request_payload")
        payload = payload_of(args, sample, input_ids, params, own, evaluation=input.evaluation)
    output = _needed("GenerateFnOutput")
    if payload is None:
        sample.status = status.TRUNCATED
        return output(samples=sample)
    headers_of = _own("compute_routing_headers")
    headers = None if headers_of is None else headers_of(args, sample)
    client = _needed("http_utils")._http_client
    if client is None:
        raise AssertionError("http client not initialized; call init_http_client first")
    base_url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    freeing = Freeing(client, base_url, payload["rid"], getattr(args, "ssefold_abort", "disconnect"))
    if not sample.tokens:
        sample.tokens = list(prompt_ids)
    await _stream_onto(sample, MilesCall(args, sample), state, _Call(client, base_url, payload, headers, freeing))
    return output(samples=sample)


async def _stream_onto(sample: Any, onto: MilesCall, state: Any, call: _Call) -> None:
    params: dict[str, Any] = call.payload["sampling_params"]
    try:
        async with aclosing(call.updates()) as updates:
            async for update in updates:
                onto.apply(update, *call.tokens.take(update))
                if state.aborted:
                    break
    finally:
        # No await in here: it must survive a cancellation.
        sample.response = onto.response + call.tokens.text(
            lambda token_ids: state.tokenizer.decode(
                token_ids, skip_special_tokens=params.get("skip_special_tokens", True)
            )
        )
        if not call.finished:
            onto.cut()
    if not call.finished:
        if not state.aborted:
            raise call.incomplete()
        sample.status = type(sample).Status.ABORTED


class _Call:
    """One request and its response."""

    def __init__(
        self, client: Any, base_url: str, payload: dict[str, Any], headers: dict[str, str] | None, freeing: Freeing
    ) -> None:
        self.payload = payload
        self.tokens = CallTokens("auto")
        self.finished = False
        self._client = client
        self._url = f"{base_url}/generate"
        self._headers = headers
        self._freeing = freeing
        self._decoder = GenerateDecoder()

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Send the request, and hand out its updates one at a time; nothing is read ahead.

        :raises StreamError: what the body says does not fit, or the server reports an error.
        """
        try:
            async with self._client.stream("POST", self._url, json=self.payload, headers=self._headers) as response:
                response.raise_for_status()
                try:
                    async with aclosing(body_of(response)) as body:
                        async for data in body:
                            for update in self._decoder.feed(data):
                                if update.index:
                                    raise ProtocolError(
                                        f"index {update.index} came in answer to a request for one output"
                                    )
                                self.finished = update.finish_reason is not None
                                yield update
                            if self._decoder.error is not None:
                                raise self._decoder.error
                finally:
                    # Before the response is closed: a server forgets the id of a client that has gone.
                    if not self.finished:
                        await self._freeing.now()
        except asyncio.CancelledError:
            # Cancelled before there was a response to close.
            if not self.finished:
                await self._freeing.now()
            raise

    def incomplete(self) -> StreamError:
        """Why the body ended without a ``finish_reason``, once it has."""
        try:
            self._decoder.close()
        except StreamError as error:
            return error
        return IncompleteStreamError("the body ended without a terminal finish_reason")


def _needed(name: str) -> Any:
    """Something of miles': what was set on this module, else miles' own, as it is now."""
    return globals()[name] if name in globals() else __getattr__(name)


def _own(name: str) -> Any:
    """The same for what a version of miles may not have; None then."""
    if name in globals():
        return globals()[name]
    try:
        return getattr(import_module(_MILES[name]), name, None)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{_MILES[name]}.".startswith(f"{error.name}."):
            return None
        raise


def __getattr__(name: str) -> Any:
    if name not in _MILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _MILES[name]
    try:
        return import_module(f"{home}.{name}") if name == "http_utils" else getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{home}.{name}".startswith(error.name):
            raise
        raise ModuleNotFoundError(
            f"ssefold.adapters.miles needs miles for {name}, and {home} can not be imported. Install miles from its own"
            " repository (github.com/radixark/miles)",
            name=home,
        ) from None
