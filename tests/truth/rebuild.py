"""A capture's script and schedule, put together again from the facts beside it and the order of its events."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ssefold.transports.testing import PROFILES, Finish, Profile, Routing, Schedule, Script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ssefold.transports.testing.wire import Moment
    from tests.truth.recorded import Recorded


def profile_of(one: Recorded) -> Profile:
    """The server that a capture's flags describe."""
    flags = one.facts["server_flags"]
    incremental = "--incremental-streaming-output" in flags
    tokens_only = "--skip-tokenizer-init" in flags
    name = "0.5.23" + "-incremental" * incremental + "-tokens_only" * tokens_only
    return PROFILES[name]


def scripts_of(one: Recorded, pieces: Mapping[int, bytes], payloads: Sequence[dict[str, Any]]) -> list[Script]:
    """Its outputs in index order.

    :param payloads: what came, for what no truth says: latencies, times, rids that the server made up, and the texts of
        alternatives that were never generated.
    """
    request = one.facts["request"]
    truths = sorted(one.facts["ground_truth"], key=lambda truth: truth["index"])
    return [
        _with_times(_script(truth, request, pieces), [p for p in payloads if p.get("index", 0) == truth["index"]])
        for truth in truths
    ]


def _script(truth: dict[str, Any], request: dict[str, Any], pieces: Mapping[int, bytes]) -> Script:
    ids = tuple(truth["output_ids"])
    params = request["sampling_params"]
    tops = truth.get("output_top_logprobs")
    script = Script(
        token_ids=ids,
        pieces=tuple(pieces[token_id] for token_id in ids),
        finish=_finish(truth),
        rid=truth["rid"],
        prompt_ids=tuple(truth["prompt_ids"]),
        vocabulary={token_id: piece.decode("utf-8", "replace") for token_id, piece in pieces.items()},
        text_in_logprobs=request.get("return_text_in_logprobs", False),
        no_stop_trim=isinstance(params, dict) and params.get("no_stop_trim", False),
        routed_experts=_routing(truth, request),
    )
    if not request.get("return_logprob"):
        return script
    script = replace(
        script,
        logprobs=tuple(truth.get("output_token_logprobs") or (None,) * len(ids)),
        input_logprobs=tuple((row[0], row[1]) for row in truth.get("input_token_logprobs") or ()),
    )
    if request.get("top_logprobs_num"):
        rows = tuple(tuple((entry[0], entry[1]) for entry in row) for row in tops or ())
        script = replace(script, top_logprobs=rows)
    return script


def _finish(truth: dict[str, Any]) -> Finish:
    reason = truth["finish_reason"]
    if reason is None:
        # The scheduler never finished it: it was retracted, and aborted in the queue.
        return Finish.queue_abort()
    # A validation abort runs with a prompt of one token.
    rejected = "logprob_start_len" in reason.get("message", "")
    return Finish("rejected" if rejected else "finished", reason)


def _routing(truth: dict[str, Any], request: dict[str, Any]) -> Routing | None:
    if "routed_experts" not in truth:
        return None
    _, layers, top_k = truth["routed_experts_shape"]
    start = request.get("routed_experts_start_len", 0)
    rows = tuple(tuple(itertools.chain.from_iterable(row)) for row in truth["routed_experts"])
    return Routing(((0,) * (layers * top_k),) * start + rows, layers, top_k, start)


def _with_times(script: Script, payloads: Sequence[dict[str, Any]]) -> Script:
    metas = [payload["meta_info"] for payload in payloads]
    rows = [row for meta in metas for row in meta.get("output_top_logprobs", ()) if row is not None]
    others = {token_id: text for _, token_id, text in itertools.chain.from_iterable(rows) if text is not None}
    return replace(
        script,
        vocabulary={**others, **script.vocabulary},
        rid=metas[0]["id"],
        e2e_latency=metas[-1]["e2e_latency"],
        sent_ts=metas[0]["response_sent_to_client_ts"],
    )


def schedule_of(one: Recorded, scripts: Sequence[Script]) -> Schedule:
    """The sends that the scheduler reported, and a take and a write where the events say they must have been."""
    truths = sorted(one.facts["ground_truth"], key=lambda truth: truth["index"])
    sends = [[len(send["output_ids"]) for send in truth["sends_to_detokenizer"]] for truth in truths]
    made = [0] * len(scripts)
    moments: list[Moment] = []
    for payload in one.payloads:
        index = payload.get("index", 0)
        meta = payload["meta_info"]
        visible = _visible(payload)
        queued = scripts[index].finish.how == "queued" and meta["finish_reason"] is not None
        total = len(sends[index]) + queued
        while made[index] < total and (
            sum(sends[index][: made[index]]) < meta["completion_tokens"] or meta["finish_reason"] is not None
        ):
            moments.append(("send", index))
            made[index] += 1
        if not made[index]:
            moments.append(("send", index))
            made[index] += 1
        moments.append(("take", index))
        while sum(sends[index][: made[index]]) < visible:
            moments.append(("send", index))
            made[index] += 1
        moments.append(("write", index))
    return Schedule(tuple(map(tuple, sends)), tuple(moments))


def _visible(payload: dict[str, Any]) -> int:
    """How many tokens a cumulative chunk shows: more than its counter says where its lists were live."""
    return len(payload["output_ids"]) if payload["meta_info"]["finish_reason"] is None else 0
