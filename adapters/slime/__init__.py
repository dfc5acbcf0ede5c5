"""slime: ``--custom-generate-function-path ssefold.adapters.slime.generate_streaming``.

A drop-in for ``slime.rollout.sglang_streaming_rollout.generate_streaming``: a run that works with slime's own gives the
same samples, field by field; one that breaks there comes out right, or fails with an error that names the cause.

``SGLangStreamAccumulator`` and ``SGLangStreamUpdate`` work without slime.  What the function takes from slime
(``GenerateState``, ``_prepare_prompt_ids``, ``http_utils``, ``trace_span``, ...) is looked up when it runs, and can be
replaced by setting it as an attribute of this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import Any

from .._call.freeing import Freeing
from .body import SlimeStream
from .request import copied, headers_of, payload_of
from .sample import SampleCall
from .stream import SGLangStreamAccumulator, SGLangStreamUpdate, flag_of

__all__ = ["SGLangStreamAccumulator", "SGLangStreamUpdate", "generate_streaming"]

#: What is slime's, and the modules that it may live in (the newest first).
_SLIMES = {
    "GenerateState": ("slime.rollout.sglang_rollout",),
    "_prepare_prompt_ids": ("slime.rollout.sglang_rollout",),
    "http_utils": ("slime.utils.http_utils",),
    "trace_span": ("slime.observability.trace_utils", "slime.utils.trace_utils"),
    "build_sglang_meta_trace_attrs": ("slime.observability.trace_utils", "slime.utils.trace_utils"),
    "encode_image_for_rollout_engine": ("slime.utils.processing_utils",),
}


async def generate_streaming(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    """Generate a response for ``sample``, from where it stands, and put every chunk onto it as it comes.

    :param args: slime's arguments.  ``sglang_incremental_streaming_output`` is checked against the stream; absent, the
        stream's mode is found out.  ``ssefold_abort`` (``"disconnect"``; ``"direct"``, ``"router"``): how the server is
        freed when the call is cancelled or aborted.
    :param sample: slime's ``Sample``, PENDING or ABORTED; changed in place and returned.
    :param sampling_params: as for SGLang; not changed.
    :raises AssertionError: the sample's status, the budget or the http client is not what it must be.
    :raises ValueError: the stream, the server's in-band error or what the sample refuses; see ``ssefold.StreamError``.
    :raises RuntimeError: the stream ended without a ``finish_reason``.
    """
    if getattr(args, "use_score_centering", False):
        raise ValueError("Score centering does not support streaming rollout.")
    if args.ci_test and not isinstance(sample.prompt, str):
        raise AssertionError(f"ci_test: sample.prompt must be a string, found {type(sample.prompt).__name__}")
    state = _slimes("GenerateState")(args)
    base_url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    status = type(sample).Status
    if sample.status not in (status.PENDING, status.ABORTED):
        raise AssertionError(f"Sample status is {sample.status}")
    prompt_ids = _slimes("_prepare_prompt_ids")(sample, state.tokenizer, state.processor)
    params = dict(sampling_params)
    params["max_new_tokens"] -= sample.response_length
    if params["max_new_tokens"] < 0:
        raise AssertionError(f"max_new_tokens: {params['max_new_tokens']} should not be less than 0")
    if params["max_new_tokens"] == 0:
        sample.status = status.TRUNCATED
        return sample
    encode_image = _slimes("encode_image_for_rollout_engine") if sample.multimodal_inputs else None
    payload = payload_of(args, sample, prompt_ids, params, encode_image)
    if not sample.tokens:
        sample.tokens = copied(prompt_ids)
    headers = headers_of(args, sample)
    call = SampleCall(args, sample)
    stream = SlimeStream(flag_of(args))
    client = _slimes("http_utils")._http_client
    if client is None:
        raise AssertionError("http client not initialized; call init_http_client first")
    freeing = Freeing(client, base_url, payload["rid"], getattr(args, "ssefold_abort", "disconnect"))

    attrs = {"max_new_tokens": params["max_new_tokens"]}
    try:
        with _slimes("trace_span")(sample, "sglang_generate_stream", attrs=attrs) as span:
            async with aclosing(_receive(client, f"{base_url}/generate", payload, headers, stream, freeing)) as updates:
                async for update in updates:
                    call.apply(update)
                    if state.aborted:
                        break
            if stream.finish_reason is not None:
                span.update(_slimes("build_sglang_meta_trace_attrs")(stream.last_meta))
    finally:
        # No await in here: it must survive a cancellation.
        sample.response = call.response + stream.tokens.text(
            lambda token_ids: state.tokenizer.decode(
                token_ids, skip_special_tokens=params.get("skip_special_tokens", True)
            )
        )
        if stream.finish_reason is None:
            call.warn_of_lost_rows()
    if stream.finish_reason is not None:
        call.check_rows()
    elif state.aborted:
        sample.status = status.ABORTED
    else:
        raise stream.incomplete()
    return sample


#: slime then cancels the request instead of aborting everything on the server.
generate_streaming.abort_mode = "request"  # type: ignore[attr-defined]


async def _receive(
    client: Any,
    url: str,
    payload: dict[str, Any],
    headers: dict[str, str] | None,
    stream: SlimeStream,
    freeing: Freeing,
) -> AsyncGenerator[SGLangStreamUpdate, None]:
    """Send the request, and hand out its updates one at a time; nothing is read ahead."""
    try:
        async with client.stream("POST", url, json=payload, headers=headers) as response:
            response.raise_for_status()
            try:
                async with aclosing(stream.updates(response)) as updates:
                    async for update in updates:
                        yield update
            finally:
                # Before the response is closed: a server forgets the id of a client that has gone.
                if stream.finish_reason is None:
                    await freeing.now()
    except asyncio.CancelledError:
        # Cancelled before there was a response to close.
        if stream.finish_reason is None:
            await freeing.now()
        raise


def _slimes(name: str) -> Any:
    """Something of slime's: what was set on this module, else slime's own, as it is now."""
    return globals()[name] if name in globals() else __getattr__(name)


def __getattr__(name: str) -> Any:
    homes = _SLIMES.get(name)
    if homes is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in homes:
        try:
            module = import_module(home)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{home}.".startswith(f"{error.name}."):
                continue
            raise
        return module if home.endswith(f".{name}") else getattr(module, name)
    raise ModuleNotFoundError(
        f"ssefold.adapters.slime needs slime for {name}, and {homes[0]} can not be imported. Install slime from its own"
        " repository (github.com/THUDM/slime); the package of that name on PyPI is another project",
        name=homes[0],
    )
