"""The scripts behind ``tests/data/streams``: what the recorded servers were told to generate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ssefold.transports.testing import (
    PROFILES,
    Body,
    Finish,
    Routing,
    Schedule,
    Script,
    Span,
    eager,
    encode,
    sglang,
)

_LOGPROBS = (-0.11968021094799042, -0.0018215269083157182, -1.4996733665466309, -0.8204065561294556,
             -0.004454452078789473)  # fmt: skip
_DETAILS = {"device": 4, "host": 0}
_EXPERTS = (0, 1, 3, 4, 7, 8, 10, 11, 14, 15, 17, 18, 21, 22, 24, 25, 28, 29, 31, 32, 35, 36, 38, 39, 42, 43, 45, 46,
            49, 50, 52, 53, 56, 57, 59, 60, 63, 0, 2, 3, 6, 7, 9, 10)  # fmt: skip
_MASK = ((101, 205), (102,), (103, 310, 311), (104,), (2, 9))

HELLO = Script(
    token_ids=(101, 102, 103, 104, 2),
    pieces=(b"Hel", b"lo", b" wor", b"ld", b"</s>"),
    logprobs=_LOGPROBS,
    finish=Finish.stop(2),
    cached_tokens=4,
    cached_tokens_details=_DETAILS,
)
_UNCACHED: dict[str, Any] = {"cached_tokens": 0, "cached_tokens_details": None}
_REPLAY = replace(
    HELLO,
    top_p_rows=_MASK,
    routed_experts=Routing(tuple(_EXPERTS[i : i + 4] for i in range(0, len(_EXPERTS), 4)), 2, 2),
)
_STEPS = (1, 1, 1, 2)
_TOO_MANY = (
    "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9007 "
    "tokens: 7 tokens from the input messages and 9000 tokens for the completion. Please reduce the number of tokens "
    "in the input messages or the completion to fit within the limit."
)


def _first(script: Script, tokens: int, finish: Finish, **changes: Any) -> Script:
    """The first tokens of a script, ended in another way."""
    logprobs = script.logprobs if script.logprobs is None else script.logprobs[:tokens]
    return replace(
        script,
        token_ids=script.token_ids[:tokens],
        pieces=script.pieces[:tokens],
        logprobs=logprobs,
        finish=finish,
        **changes,
    )


def _alternatives(others: tuple[int, ...]) -> tuple[tuple[tuple[float | None, int], ...], ...]:
    return tuple(
        ((logprob, token_id), (logprob - 2.5, other))
        for logprob, token_id, other in zip(_LOGPROBS, HELLO.token_ids, others, strict=True)
    )


_TOPS = replace(
    HELLO,
    text_in_logprobs=True,
    vocabulary={15: "a", 16: "b", 17: "c"},
    top_logprobs=_alternatives((601, 602, 603, 604, 502)),
    input_logprobs=((None, 15), (-0.3, 16), (-0.6, 17)),
    input_top_logprobs=(None, ((-0.3, 16), (-2.0, 99)), ((-0.6, 17), (-1.0, 98))),
)
_PAIR = (
    _first(HELLO, 3, Finish.stop(2), rid="a0", **_UNCACHED),
    replace(
        HELLO,
        token_ids=(201, 202, 203),
        pieces=(b"X", b"Y", b"Z"),
        logprobs=(-1.8349664211273193, -0.25, -2.0810649394989014),
        finish=Finish.length(3),
        rid="b1",
        **_UNCACHED,
    ),
)
_PAIR = (replace(_PAIR[0], token_ids=(101, 102, 2), pieces=(b"Hel", b"lo", b"</s>"),
                 logprobs=(_LOGPROBS[0], _LOGPROBS[1], _LOGPROBS[4])), _PAIR[1])  # fmt: skip
_TAKE_TURNS = "0 1 1 0 1 0"


@dataclass(frozen=True)
class Case:
    """A recorded stream and how to make it again."""

    name: str
    body: Body


def _moments(order: str) -> Any:
    return tuple((what, int(output)) for output in order.split() for what in ("send", "take", "write"))


def _run(script: Script, profile: str, sends: tuple[int, ...] = _STEPS) -> Body:
    aborts = (0,) if script.finish.how == "queued" else ()
    server = PROFILES.get(profile) or sglang(profile)
    return encode(script, server, eager([sends], aborts))


def _stop_string() -> Script:
    return replace(
        HELLO,
        token_ids=(101, 102, 30, 31),
        pieces=(b"Hel", b"lo", b"\n\n", b"Q: what"),
        logprobs=(-0.5,) * 4,
        finish=Finish.stop("\n\nQ"),
        **_UNCACHED,
    )


def _unicode() -> Script:
    return replace(
        HELLO,
        token_ids=(40, 41, 42, 43, 44, 2),
        pieces=(b"ok ", b"\xf0\x9f", b"\x98\x80", "\u2028line\u0085".encode(), b" \x0b\x1c\t", b"</s>"),
        logprobs=(-0.5,) * 6,
        **_UNCACHED,
    )


def _not_finite() -> Script:
    return _first(
        replace(HELLO, logprobs=(float("nan"), float("-inf"), 0.0, 0.0, 0.0)), 2, Finish.length(2), **_UNCACHED
    )


def cases() -> list[Case]:
    """Every recorded stream that a server of ours can have sent."""
    too_long = "Input is too long."
    queue_full = Finish.overloaded()
    bodies = {
        "01_cumulative_single": _run(_TOPS, "0.5.23"),
        "02_incremental_single": _run(_TOPS, "0.5.23-incremental"),
        "03_default_ids_delta_text_cumulative": _run(HELLO, "0.5.5"),
        "04_default_ids_delta_with_prompt_tail": _run(HELLO, "0.5.3"),
        "08_n2_incremental_interleaved": encode(
            _PAIR,
            PROFILES["0.5.23-incremental"],
            Schedule(((1, 1, 1), (1, 1, 1)), _moments(_TAKE_TURNS)),
        ),
        "11_error_event_only": encode(HELLO, PROFILES["0.5.23"]).failed(0, PROFILES["0.5.23"].error(_TOO_MANY)),
        "12_abort_while_running": _run(_first(HELLO, 3, Finish.aborted()), "0.5.23", (1, 1, 1)),
        "14_abort_in_queue_incremental": _run(_first(HELLO, 3, Finish.queue_abort()), "0.5.23-incremental", (1, 1, 1)),
        "16_abort_before_first_token": _run(_first(HELLO, 0, Finish.queue_abort()), "0.5.23", ()),
        "17_abort_before_prefill_old": _run(_first(HELLO, 0, Finish.queue_abort()), "0.5.4", ()),
        "18_queue_full_503_in_band": _run(_first(HELLO, 0, queue_full), "0.5.23", ()),
        "20_slime_replay_cumulative": _run(_REPLAY, "0.5.15.post1-slime"),
        "21_slime_replay_incremental": _run(_REPLAY, "0.5.15.post1-incremental-slime"),
        "23_routed_experts_null_in_nonterminal": _run(_REPLAY, "0.5.8"),
        "25_terminal_but_no_done": _run(_TOPS, "0.5.23").without_done(),
        "26_utf8_holdback_and_unicode_line_separators": _run(_unicode(), "0.5.23-incremental", (1, 1, 1, 1, 2)),
        "28_nonfinite_logprobs_become_null": _run(_not_finite(), "0.5.23", (1, 1)),
        "29_stop_string_trimmed_text": _run(_stop_string(), "0.5.23", (1, 1, 2)),
        "31_skip_tokenizer_init_no_text": _run(replace(HELLO, **_UNCACHED), "0.5.23-incremental-tokens_only"),
        "33_sampling_mask_incremental": _run(
            replace(HELLO, sampling_mask=_MASK, sampling_logprobs=(-0.25,) * 5), "0.5.23-incremental"
        ),
        "35_weight_update_mid_stream": _run(
            replace(HELLO, weight_spans=(Span("v1", 0, 3), Span("v2", 3, 5)), weight_version="default"), "0.5.23"
        ),
        "36_gateway_grpc_generate": _run(
            _first(replace(HELLO, rid="gen-7", logprobs=None), 4, Finish.length(4), **_UNCACHED),
            "grpc-gateway",
            (1, 1, 2),
        ),
        "41_empty_body": _run(_first(HELLO, 0, queue_full), "0.5.3", ()),
    }
    first = _first(HELLO, 1, Finish.unfinished(), rid="a0", **_UNCACHED)
    second = _first(HELLO, 0, Finish("queued", {"type": "abort", "status_code": 400, "message": too_long}), rid="b1")
    bodies["10_batch_error_event_kills_siblings"] = encode(
        (first, second), sglang("0.5.4"), Schedule(((1,), ()), _moments("0 1"))
    )
    return [Case(name, body) for name, body in sorted(bodies.items())]
