"""The caller of a custom generate function: state, prompt preparation, cancelling, aborting."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..utils.http_utils import get, post
from ..utils.misc import SingletonMeta, load_function
from ..utils.types import Sample


def _prepare_prompt_ids(sample: Sample, tokenizer: Any, processor: Any) -> Any:
    raw = sample.multimodal_inputs or {}
    multimodal = any(value is not None for value in raw.values())
    if sample.tokens and (sample.multimodal_train_inputs is not None or not multimodal):
        return sample.tokens
    if processor and multimodal:
        found = processor(text=sample.prompt, **raw)
        if sample.multimodal_train_inputs is None:
            rest = {key: value for key, value in found.items() if key not in ("input_ids", "attention_mask")}
            sample.multimodal_train_inputs = rest or None
        return found["input_ids"][0]
    return tokenizer.encode(sample.prompt, add_special_tokens=False)


class GenerateState(metaclass=SingletonMeta):
    def __init__(self, args: Any) -> None:
        self.args = args
        self.tokenizer = args.tokenizer
        self.processor = args.processor
        self.semaphore = asyncio.Semaphore(64)
        self.reset()

    def reset(self) -> None:
        self.aborted = False
        self.pendings: set[asyncio.Task[Any]] = set()
        self.cancellable_tasks: set[asyncio.Task[Any]] = set()
        self.active_server_generations = 0


async def reference_generate(args: Any, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """The function that does not stream, restated from what it does."""
    state = GenerateState(args)
    assert sample.status in (Sample.Status.PENDING, Sample.Status.ABORTED)
    prompt_ids = _prepare_prompt_ids(sample, state.tokenizer, state.processor)
    sampling_params["max_new_tokens"] -= sample.response_length
    if not sampling_params["max_new_tokens"]:
        sample.status = Sample.Status.TRUNCATED
        return sample
    payload = {"sampling_params": sampling_params, "return_logprob": True, "input_ids": prompt_ids}
    if args.use_rollout_routing_replay:
        payload["return_routed_experts"] = True
    sample.tokens = sample.tokens or prompt_ids
    output = await post(f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate", payload)
    meta = output["meta_info"]
    rows = meta.get("output_token_logprobs", [])
    tokens, log_probs = [row[1] for row in rows], [row[0] for row in rows]
    sample.append_response_tokens(args, tokens=tokens, log_probs=log_probs, meta_info=meta, text=output["text"])
    return sample


async def generate_and_rm(args: Any, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False) -> Any:
    if args.partial_rollout and args.mask_offpolicy_in_partial_rollout and sample.response_length > 0:
        sample.loss_mask = [0] * sample.response_length
    if sample.status in (Sample.Status.COMPLETED, Sample.Status.TRUNCATED):
        return sample
    state = GenerateState(args)
    async with state.semaphore:
        if state.aborted:
            sample.status = Sample.Status.ABORTED
            return sample
        generate = load_function(sample.generate_function_path or args.custom_generate_function_path)
        extra = {"evaluation": evaluation} if "evaluation" in inspect.signature(generate).parameters else {}
        call = generate(args, sample, sampling_params, **extra)
        if getattr(generate, "abort_mode", None) == "request":
            return await _abortable(state, sample, call)
        state.active_server_generations += 1
        try:
            return await call
        finally:
            state.active_server_generations -= 1


async def _abortable(state: GenerateState, sample: Sample, call: Any) -> Any:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not in a task")
    state.cancellable_tasks.add(task)
    try:
        return await call
    except asyncio.CancelledError:
        if task in state.cancellable_tasks:
            raise  # somebody else's cancellation
        sample.status = Sample.Status.ABORTED
        return sample
    finally:
        state.cancellable_tasks.discard(task)


async def abort(args: Any, rollout_id: int) -> list[list[Sample]]:
    state = GenerateState(args)
    state.aborted = True
    cancelled = list(state.cancellable_tasks)
    state.cancellable_tasks.difference_update(cancelled)
    for task in cancelled:
        task.cancel()
    if state.active_server_generations:
        await get(f"http://{args.sglang_router_ip}:{args.sglang_router_port}/workers")
    await asyncio.gather(*cancelled, return_exceptions=True)
    kept: list[list[Sample]] = []
    while state.pendings:
        done, state.pendings = await asyncio.wait(state.pendings, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            group = task.result()
            if args.partial_rollout and any(s.status == Sample.Status.ABORTED and s.response_length > 0 for s in group):
                for sample in group:
                    if sample.response:
                        sample.metadata.setdefault("start_rollout_id", rollout_id)
                kept.append(group)
    return kept
