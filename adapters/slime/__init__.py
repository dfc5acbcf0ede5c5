"""slime: ``--custom-generate-function-path ssefold.adapters.slime.generate_streaming``.

A drop-in for ``slime.rollout.sglang_streaming_rollout.generate_streaming``: a run that works with slime's own gives the
same samples, field by field; one that breaks there comes out right, or fails with an error that names the cause.

``SGLangStreamAccumulator`` and ``SGLangStreamUpdate`` work without slime.  What the function takes from slime
(``GenerateState``, ``_prepare_prompt_ids``, ``http_utils``, ``trace_span``, ...) is looked up when it runs, and can be
replaced by setting it as an attribute of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from ssefold import StreamError

from .._call import Exchange, Lookup
from .call import SlimeCall
from .lines import LineEvents
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
_slimes = Lookup("slime", "github.com/THUDM/slime", globals(), _SLIMES)
__getattr__: Callable[[str], Any] = _slimes.own


async def generate_streaming(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    """Generate a response for ``sample``, from where it stands, and put every chunk onto it as it comes.

    :param args: slime's arguments.  ``sglang_incremental_streaming_output`` is checked against the stream; absent, the
        stream's mode is found out.  ``ssefold_abort`` (``"disconnect"``; ``"direct"``, ``"router"``): how the server is
        freed when the call is cancelled or aborted; ``ssefold_abort_timeout`` (5): seconds that it may take then, and
        that the rest of the body may take after the ``finish_reason``; ``ssefold_fast_path`` (True): see
        :class:`~ssefold.GenerateDecoder`.
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
    state = _slimes["GenerateState"](args)
    status = type(sample).Status
    if sample.status not in (status.PENDING, status.ABORTED):
        raise AssertionError(f"Sample status is {sample.status}")
    prompt_ids = _slimes["_prepare_prompt_ids"](sample, state.tokenizer, state.processor)
    params = dict(sampling_params)
    params["max_new_tokens"] -= sample.response_length
    if params["max_new_tokens"] < 0:
        raise AssertionError(f"max_new_tokens: {params['max_new_tokens']} should not be less than 0")
    if params["max_new_tokens"] == 0:
        sample.status = status.TRUNCATED
        return sample
    encode_image = _slimes["encode_image_for_rollout_engine"] if sample.multimodal_inputs else None
    payload = payload_of(args, sample, prompt_ids, params, encode_image)
    if not sample.tokens:
        sample.tokens = copied(prompt_ids)
    headers = headers_of(args, sample)
    onto = SampleCall(args, sample)
    call = SlimeCall(flag_of(args), fast_path=getattr(args, "ssefold_fast_path", True))
    client = _slimes["http_utils"]._http_client
    if client is None:
        raise AssertionError("http client not initialized; call init_http_client first")
    exchange = Exchange(args, client, payload, headers, call.decoder, LineEvents().split)

    attrs = {"max_new_tokens": params["max_new_tokens"]}
    try:
        with _slimes["trace_span"](sample, "sglang_generate_stream", attrs=attrs) as span:
            async with aclosing(exchange.updates()) as updates:
                async for update in updates:
                    onto.apply(call.take(update))
                    if state.aborted:
                        break
            if exchange.finish_reason is not None:
                span.update(_slimes["build_sglang_meta_trace_attrs"](call.last_meta))
    except StreamError as error:
        said = call.in_slimes_words(error)
        if said is error:
            raise
        raise said from error
    finally:
        # No await in here: it must survive a cancellation.
        sample.response = onto.response + call.tokens.text(
            lambda token_ids: state.tokenizer.decode(
                token_ids, skip_special_tokens=params.get("skip_special_tokens", True)
            )
        )
        if exchange.finish_reason is None:
            onto.warn_of_lost_rows()
    if exchange.finish_reason is not None:
        onto.check_rows()
    elif state.aborted:
        sample.status = status.ABORTED
    else:
        raise call.in_slimes_words(exchange.incomplete())
    return sample


#: slime then cancels the request instead of aborting everything on the server.
generate_streaming.abort_mode = "request"  # type: ignore[attr-defined]
