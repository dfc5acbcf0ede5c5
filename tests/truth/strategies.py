"""Hypothesis strategies for scripts, schedules and whole runs of a server.

>>> @given(runs())
... def test(run): decode(run.body.data) must hold run.body.held

A run never asks for what its server cannot do, and (unless ``lossy``) never loses ids that a slow reader would lose:
what comes out of a run can be known exactly from its bytes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hypothesis import assume
from hypothesis import strategies as st

from ssefold.transports.testing import (
    PROFILES,
    Body,
    Finish,
    Profile,
    Routing,
    Schedule,
    Script,
    Span,
    choose,
    encode,
    late,
)
from tests.truth.bulk import MAX_ID, Bulk, float32

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from hypothesis.strategies import DrawFn, SearchStrategy

FRAGMENTS = (
    "a", "Hello", " world", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x00", "\x1f", "\x7f", '"', "\\", "\\u00e9", "</s>",
    "é", "ß", "Я", "中", "文字", "日本語", "한국", "עברית", "😀", "👩‍👩‍👧",
    "🇫🇷", "\u2028", "\u2029", "\u0085", "\ufeff",
    "\ufffd", "data: [DONE]\n\n", "e-07", "0", ",", "{", "]",
)  # fmt: skip
"""Text that has broken a parser somewhere: line separators, quotes, characters of every length in UTF-8."""

STOP_STRINGS = ("\n\nQ", "STOP", "</s>", "。", "\\boxed{", '"')


@dataclass(frozen=True)
class Run:
    """One request as one server answered it.

    :ivar listed: chunks carry ``index``.
    """

    scripts: tuple[Script, ...]
    profile: Profile
    schedule: Schedule
    listed: bool
    body: Body = field(repr=False)


@st.composite
def bulk(draw: DrawFn) -> Bulk:
    """A source of numbers."""
    return Bulk(draw(st.integers(0, 2**32 - 1)))


@st.composite
def pieces(draw: DrawFn, *, max_tokens: int = 12, broken: bool = True) -> tuple[bytes, ...]:
    """A text cut into the bytes of its tokens, anywhere, also inside a character.

    :param broken: let some bytes be no UTF-8.
    """
    data = "".join(draw(st.lists(st.sampled_from(FRAGMENTS), max_size=10))).encode()
    if broken and data and draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.sampled_from((b"\xff", b"\x80", b"\xe2\x82", b"\xf0\x9f"))) + data[at + 1 :]
    cuts = min(draw(st.integers(0, max(max_tokens - 1, 0))), len(data))
    places = draw(st.lists(st.integers(0, len(data)), min_size=cuts, max_size=cuts, unique=True))
    edges = [0, *sorted(places), len(data)]
    return tuple(data[start:end] for start, end in itertools.pairwise(edges) if data)


@st.composite
def _with_stop(draw: DrawFn, text: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], Finish]:
    """An end for this text: a stop token, a stop string that ends inside the last token, a limit or an abort."""
    kind = draw(st.sampled_from(("token", "token", "string", "length", "aborted", "timeout", "nan")))
    if kind == "token":
        token_id = draw(st.sampled_from((0, 2, 128009)))
        return (*text, b"</s>"), Finish.stop(token_id)
    if kind == "string":
        stop = draw(st.sampled_from(STOP_STRINGS))
        behind = draw(st.sampled_from((b"", b"!", " 中".encode())))
        data = stop.encode()
        cut = draw(st.integers(0, len(data) - 1))
        head = (data[:cut],) if cut else ()
        return (*text, *head, data[cut:] + behind), Finish.stop(stop)
    if kind == "length" or not text:
        return text, Finish.length(len(text))
    if kind == "aborted":
        return text, Finish.aborted()
    if kind == "timeout":
        return text, Finish.aborted("Request running timeout reached.", status_code=503)
    return text, Finish.nan()


@st.composite
def finishes(draw: DrawFn, text: tuple[bytes, ...], profile: Profile) -> tuple[tuple[bytes, ...], Finish]:
    """The tokens' bytes with what ends them, by every way that this server has."""
    kinds = ["normal"] * 6
    if profile.version >= (0, 4, 9):
        kinds += ["queued", "queued", "shed"]
    if not profile.aborts_raise:
        kinds.append("rejected")
    kind = draw(st.sampled_from(kinds))
    if kind == "queued":
        return text, Finish.queue_abort()
    if kind == "shed":
        return (), Finish.overloaded()
    if kind == "rejected":
        return (b"?",), Finish.rejected("logprob_start_len is higher than the number of input tokens")
    ended, finish = draw(_with_stop(text))
    if profile.aborts_raise and finish.abort_status is not None:
        return ended, Finish.aborted()
    return ended, finish


@st.composite
def scripts(
    draw: DrawFn,
    profile: Profile = PROFILES["0.5.23"],
    *,
    max_tokens: int = 12,
    broken: bool = True,
    lossy: bool = False,
    extra_rows: bool = False,
) -> Script:
    """One output, with anything that a request to this server can ask about it; the flags are those of :func:`runs`."""
    text = draw(pieces(max_tokens=max_tokens, broken=broken))
    text, finish = draw(finishes(text, profile))
    matched = (finish.reason or {}).get("matched")
    ids = _ids(text, draw(st.integers(3, 1000)), matched if isinstance(matched, int) else None)
    prompt = tuple(draw(st.lists(st.integers(0, MAX_ID), min_size=1, max_size=9)))
    flags = draw(st.integers(0, 2**6 - 1))
    script = Script(
        token_ids=ids,
        pieces=text,
        finish=finish,
        rid=f"{draw(st.integers(0, 2**32 - 1)):x}",
        prompt_ids=prompt,
        return_prompt_token_ids=bool(flags & 1),
        cached_tokens=len(prompt) - 1 if flags & 2 else 0,
        cached_tokens_details={"device": len(prompt) - 1, "host": 0} if flags & 2 else None,
        reasoning_tokens=len(ids) // 2 if flags & 4 else 0,
        retractions=1 if flags & 8 else 0,
        dp_rank=3 if flags & 8 else None,
        no_stop_trim=bool(flags & 16),
        modal_tokens={"image_tokens": 4} if flags & 32 else {},
        weight_spans=_spans(len(ids), draw(st.integers(0, 3 * max_tokens))),
    )
    numbers = draw(bulk())
    asks = draw(st.integers(0, 2**4 - 1))
    if asks & 12:
        script = _with_logprobs(script, numbers, tops=bool(asks & 1), ids=bool(asks & 2), texts=bool(asks & 8))
        if extra_rows and finish.how == "finished" and asks & 4:
            script = replace(script, extra_rows=tuple((numbers.logprob(), token_id) for token_id in numbers.ids()[:2]))
    wanted = draw(st.sets(st.sampled_from(("mask", "custom", "hidden", "top_p", "experts", "indexer")), max_size=3))
    return _with_extras(script, profile, numbers, wanted, lossy=lossy)


def _ids(text: tuple[bytes, ...], step: int, stop: int | None) -> tuple[int, ...]:
    """The same bytes are the same token."""
    known = {piece: 3 + step * place for place, piece in enumerate(dict.fromkeys(text), start=1)}
    ids = [known[piece] for piece in text]
    if stop is not None:
        ids[-1] = stop
    return tuple(ids)


def _spans(tokens: int, places: int) -> tuple[Span, ...]:
    """One, two or three weight versions."""
    cuts = {cut for cut in (places % 13, places // 2) if 0 < cut < tokens}
    edges = [0, *sorted(cuts), tokens]
    return tuple(Span(f"v{i}", start, end) for i, (start, end) in enumerate(itertools.pairwise(edges)))


def _with_logprobs(script: Script, numbers: Bulk, *, tops: bool, ids: bool, texts: bool) -> Script:
    tokens = len(script.token_ids)
    # logprob_start_len is anywhere in the prompt, or behind it.
    asked = script.prompt_ids[len(numbers.ids()) - 1 :]
    script = replace(
        script,
        logprobs=numbers.logprobs(tokens),
        input_logprobs=tuple(zip((None, *numbers.logprobs(len(asked))), asked, strict=False)),
        text_in_logprobs=texts,
    )
    if tops:
        of_prompt = numbers.alternatives(len(asked), prompt=True)
        script = replace(script, top_logprobs=numbers.alternatives(tokens), input_top_logprobs=of_prompt)
    if ids:
        of_prompt = numbers.alternatives(len(asked), prompt=True)
        script = replace(script, ids_logprobs=numbers.alternatives(tokens), input_ids_logprobs=of_prompt)
    return script


def _with_extras(script: Script, profile: Profile, numbers: Bulk, wanted: AbstractSet[str], *, lossy: bool) -> Script:
    tokens, prompt = len(script.token_ids), len(script.prompt_ids)
    few = len(numbers.ids())
    if "mask" in wanted:
        mask = tuple(numbers.ids() for _ in range(tokens))
        # sampling_logprobs_mode: of the token, or ("support") of each kept id.
        one = tuple(float32(-place / 7) for place in range(tokens))
        each = tuple(tuple(float32(-token_id / 7) for token_id in row) for row in mask)
        script = replace(script, sampling_mask=mask, sampling_logprobs=each if few == 1 else one)
    # Parts of a list are gone with the chunk that had them.
    whole = profile.custom in ("list", "snapshot")
    if "custom" in wanted and (whole or (lossy and profile.custom == "delta")):
        values = ((None, 1.5, "a\u2028", place)[(place + few) % 4] for place in range(tokens))
        script = replace(script, custom={"confidence": tuple(values)})
    if "hidden" in wanted:
        states = tuple([[0.5, float(i)]] if i == 0 else [0.25, float(i)] for i in range(tokens))
        script = replace(script, hidden_states=states, hidden_last=few == 1)
    if "top_p" in wanted and script.logprobs is not None:
        script = replace(script, top_p_rows=tuple(numbers.ids() for _ in range(tokens)))
    fed = max(prompt + tokens - 1, 0)
    if "experts" in wanted:
        rows = tuple((i % 7, (i + 3) % 7, -1, 6) for i in range(fed))
        script = replace(script, routed_experts=Routing(rows, 2, 2, min(few - 1, prompt)))
    if "indexer" in wanted:
        script = replace(script, indexer_topk=Routing(tuple((i, i + 1) for i in range(fed)), 1, 2))
    return script


@st.composite
def sends(draw: DrawFn, script: Script) -> tuple[int, ...]:
    """How many tokens each scheduler output carries: ones, many at once, none.

    An output whose tail may be the start of its stop string is withheld, as the server does
    (``output_streamer.accept``).
    """
    tokens = len(script.token_ids)
    if script.finish.how == "rejected":
        return (tokens,)
    counts: list[int] = []
    while sum(counts) < tokens:
        step = draw(st.sampled_from((1, 1, 1, 2, 3, 8, 0)))
        counts.append(min(step, tokens - sum(counts)))
        if len(counts) > 3 * tokens + 3:
            counts.append(tokens - sum(counts))
    if script.finish.how == "queued":
        return _withhold(script, counts)
    if not counts or draw(st.integers(0, 5)) == 0:
        # The last output can be without a token: an abort.
        counts.append(0)
    return _withhold(script, counts)


def _withhold(script: Script, counts: Sequence[int]) -> tuple[int, ...]:
    stop = (script.finish.reason or {}).get("matched")
    if not isinstance(stop, str):
        return tuple(counts)
    starts = tuple(stop.encode()[:length] for length in range(1, len(stop.encode())))
    kept: list[int] = []
    held = sent = 0
    for place, count in enumerate(counts):
        held += count
        sent += count
        tail = b"".join(script.pieces[:sent])
        if place == len(counts) - 1 or not tail.endswith(starts):
            kept.append(held)
            held = 0
    return tuple(kept)


@st.composite
def runs(
    draw: DrawFn,
    profiles: Sequence[Profile] = tuple(PROFILES.values()),
    *,
    max_outputs: int = 3,
    max_tokens: int = 12,
    lossy: bool = False,
    broken: bool = True,
    extra_rows: bool = False,
) -> Run:
    """One request answered by one of these servers, at any pace, with any interleaving of its outputs.

    :param lossy: also runs in which ids (``Held.lost``) or custom values are lost for good.
    :param broken: also texts that are not UTF-8.
    :param extra_rows: also more rows than tokens: ``max_new_tokens=0``, and speculative decoding before 0.5.10.
    """
    # Most profiles are versions of SGLang itself; the others are drawn as often as a handful of them.
    others = [profile for profile in profiles if profile.family != "sglang"]
    profile = draw(st.sampled_from((*profiles, *others, *others)))
    outputs = 1 if profile.family == "dynamo" else draw(st.integers(1, max_outputs))
    one = scripts(profile, max_tokens=max_tokens, broken=broken, lossy=lossy, extra_rows=extra_rows)
    drawn = [draw(one) for _ in range(outputs)]
    if outputs > 1:
        # One request asks for the same of all of its samples; whole batches may differ, ids must not.
        drawn = [replace(script, rid=f"{script.rid}_{i}") for i, script in enumerate(drawn)]
    steps = [draw(sends(script)) for script in drawn]
    queued = [i for i, script in enumerate(drawn) if script.finish.how == "queued"]
    listed = outputs > 1 or (profile.family != "dynamo" and draw(st.integers(0, 4)) == 0)
    paces = ["eager", "random", "random", "late"]
    if profile.loses_ids and not lossy and any(script.logprobs is None for script in drawn):
        paces = ["eager"]
    pace = draw(st.sampled_from(paces))
    if pace == "late":
        schedule = late(steps, queued, after=draw(st.integers(0, 3)))
    else:
        moments = 3 * sum(map(len, steps)) if pace == "random" else 0
        choices = draw(st.lists(st.integers(0, 3), min_size=moments, max_size=moments))
        schedule = choose(steps, choices, queued, live=listed)
    body = encode(drawn, profile, schedule, listed=listed)
    assume(lossy or not any(held.lost for one in body.sent for held in one.held))
    return Run(tuple(drawn), profile, schedule, listed, body)


def chunked(data: bytes) -> SearchStrategy[list[bytes]]:
    """These bytes in reads of any size."""
    places = st.lists(st.integers(0, len(data)), max_size=20).map(sorted)
    return places.map(lambda cuts: [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)])
