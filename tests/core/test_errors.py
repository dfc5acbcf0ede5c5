"""Every documented failure: its class, what its message says, what it carries, and that nothing is lost with it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from ssefold import (
    Accumulator,
    EventTooLargeError,
    GenerateDecoder,
    IncompleteStreamError,
    PayloadError,
    ProtocolError,
    ReplayError,
    ServerError,
    Snapshot,
    SnapshotError,
    StreamError,
)
from tests.core.by_hand import fold, shown
from tests.core.mutations import event

ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
STOP = {"type": "stop", "matched": 2}


def chunk(*ids: int, count: int | None = None, text: str = "", finish: Any = None, **meta: Any) -> dict[str, Any]:
    """An incremental chunk without logprobs; ``meta`` adds to meta_info."""
    told = {"id": "r", "finish_reason": finish, "prompt_tokens": 3, "weight_version": "v", "num_retractions": 0}
    told |= {"completion_tokens": len(ids) if count is None else count, "dp_rank": None, **meta}
    return {"text": text, "output_ids": list(ids), "meta_info": told}


def rowed(*ids: int, count: int | None = None, **meta: Any) -> dict[str, Any]:
    """A chunk with a logprob row per id."""
    total = len(ids) if count is None else count
    rows = [[-0.5, token_id, None] for token_id in ids]
    told = {"input_token_logprobs": [], "output_token_logprobs": rows, "output_token_logprobs_length": total, **meta}
    return chunk(*ids, count=total, **told)


def _without_ids(one: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name != "output_ids"}


@dataclass(frozen=True)
class Refused:
    """Chunks of which the last one is refused; ``words`` are in the message."""

    error: type[StreamError]
    words: tuple[str, ...]
    chunks: tuple[Any, ...]
    mode: Any = "auto"


TWO = (chunk(5), chunk(6, count=2))
REFUSED = {
    # PayloadError: the field, what it must be, what was found
    "no chunk": Refused(PayloadError, ("text, output_ids, meta_info", "foo", "/generate"), ({"foo": 1, "index": 0},)),
    "meta_info": Refused(PayloadError, ("meta_info", "object", "list"), ({"text": "", "meta_info": []},)),
    "text": Refused(PayloadError, ("text", "string", "int 7"), ({"text": 7},)),
    "output_ids": Refused(PayloadError, ("output_ids", "list", "str"), ({"output_ids": "1"},)),
    "an id": Refused(PayloadError, ("output_ids[1]", "token id", "-1"), (chunk(5, -1),)),
    "an id too large": Refused(PayloadError, ("output_ids[0]", "token id"), (chunk(2**63),)),
    "an id of text": Refused(PayloadError, ("output_ids[1]", "'6'"), ({"output_ids": [5, "6"]},)),
    "a row": Refused(PayloadError, ("output_token_logprobs[0]", "[logprob, token id, text]"),
                     (chunk(5, output_token_logprobs=[7]),)),
    "a logprob": Refused(PayloadError, ("output_token_logprobs[0][0]", "'x'"),
                         (chunk(5, output_token_logprobs=[["x", 5, None]]),)),
    "an id in a row": Refused(PayloadError, ("output_token_logprobs[0][1]", "1.5"),
                              (chunk(5, output_token_logprobs=[[-0.5, 1.5, None]]),)),
    "a text in a row": Refused(PayloadError, ("output_token_logprobs[0][2]", "7"),
                               (chunk(5, output_token_logprobs=[[-0.5, 5, 7]]),)),
    "rows": Refused(PayloadError, ("meta_info.output_token_logprobs", "list"), (chunk(5, output_token_logprobs="x"),)),
    "a counter": Refused(PayloadError, ("meta_info.completion_tokens", "whole number", "1.0"), (chunk(5,
    count=1.0),)),  # type: ignore[arg-type]
    "a negative counter": Refused(PayloadError, ("meta_info.completion_tokens", "-1"), (chunk(5, count=-1),)),
    "the rows' counter": Refused(PayloadError, ("output_token_logprobs_length", "True"),
                                 (rowed(5, output_token_logprobs_length=True),)),
    "finish_reason": Refused(PayloadError, ("meta_info.finish_reason", "int"), (chunk(5, finish=7),)),
    "finish_reason's type": Refused(PayloadError, ("finish_reason", "type"), (chunk(5, finish={"type": None}),)),
    "tops": Refused(PayloadError, ("meta_info.output_top_logprobs", "list"), (rowed(5, output_top_logprobs=7),)),
    # ProtocolError: the field, the numbers, the remedy
    "lost ids": Refused(ProtocolError, ("output_ids has 1 entries, 2 were known", "4 in all", "return_logprob"),
                        (*TWO, chunk(8, count=4))),
    "lost rows": Refused(ProtocolError, ("output_token_logprobs has 1 entries, 1 were known", "3 in all", "gateway"),
                         (rowed(5), rowed(7, count=3))),
    "changed ids": Refused(ProtocolError, ("output_ids[0] was 5 and is now 9", "retry"), (*TWO, chunk(9, 6, 7))),
    "changed rows": Refused(ProtocolError, ("output_token_logprobs[0] was logprob -0.5, id 5", "id 9"),
                            (rowed(5), rowed(5, 6), rowed(9, 6, 7))),
    "changed logprobs": Refused(ProtocolError, ("was logprob -0.5, id 5 and is now logprob -0.25, id 5",),
                                (rowed(5), rowed(5, 6, output_token_logprobs=[[-0.25, 5, None], [-0.5, 6, None]]))),
    "rows and ids": Refused(ProtocolError, ("output_ids [9]", "output_token_logprobs [5]", "completion_tokens 1"),
                            ({**rowed(5), "output_ids": [9]},)),
    "counter fell": Refused(ProtocolError, ("completion_tokens fell from 2 to 1", "input_embeds"),
                            (chunk(5), chunk(5, 6), chunk(5))),
    "lane changed": Refused(ProtocolError, ("output_ids lane was incremental and is now cumulative", "flags"),
                            (*TWO, chunk(5, 6, 7))),
    "tokens missing at the end": Refused(ProtocolError, ("completion_tokens is 4", "2 tokens"),
                                         (*TWO, {"meta_info": {"completion_tokens": 4, "finish_reason": STOP}})),
    "tokens missing before the end": Refused(ProtocolError, ("completion_tokens is 4", "2 tokens"),
                                             (*TWO, {"meta_info": {"completion_tokens": 4, "finish_reason": None}})),
    "tokens missing, and no rows": Refused(
        ProtocolError, ("completion_tokens is 2", "1 tokens"),
        (_without_ids(rowed(5)), {"text": "ab", "meta_info": {"completion_tokens": 2, "finish_reason": None}})),
    "rows missing at the end": Refused(ProtocolError, ("output_token_logprobs covers 1 of 2 tokens",),
                                       (rowed(5), chunk(6, count=2, finish=STOP))),
    "no counter": Refused(ProtocolError, ("output_ids repeats the 1 entries", "='cumulative'", "='incremental'"),
                          ({"output_ids": [5]}, {"output_ids": [5]})),
    "ids ahead of the counter": Refused(ProtocolError, ("output_ids has 2 entries, 0 were known", "1 in all"),
                                        (chunk(5, 6, count=1),)),
    "ids in front of the end": Refused(ProtocolError, ("output_ids has 4 entries, 1 were known", "3 in all"),
                                       (chunk(5), chunk(5, 6, 7, 7, count=3, finish=STOP))),
    "fewer ids than rows": Refused(ProtocolError, ("output_ids [7]", "output_token_logprobs [6, 7]"),
                                   (rowed(5), {**rowed(6, 7, count=3), "output_ids": [7]})),
    "rows change their lane": Refused(ProtocolError, ("output_token_logprobs has 1 entries, 2 were known", "3 in all"),
                                      (rowed(5), rowed(5, 6), rowed(7, count=3))),
    "rows alone, mode incremental": Refused(
        ProtocolError, ("mode='incremental'", "output_token_logprobs is cumulative (and there are no output_ids)"),
        tuple({"text": "", "meta_info": rowed(*ids)["meta_info"]} for ids in ((5,), (5, 6))), "incremental"),
    "tops missing": Refused(ProtocolError, ("meta_info.output_top_logprobs", "1 entries"),
                            (rowed(5, 6, output_top_logprobs=[None]),)),
    "tops changed": Refused(
        ProtocolError, ("meta_info.output_top_logprobs changed entries already sent (among the first 1)",),
        (rowed(5, output_top_logprobs=[[1]]), rowed(5, 6, output_top_logprobs=[[2], [3]]))),
    "tops that stand still": Refused(
        ProtocolError, ("meta_info.output_top_logprobs is cumulative, and has 2 entries where there must be 4",),
        (rowed(5, output_top_logprobs=[[1]]), rowed(5, 6, output_top_logprobs=[[1], [2]]),
         rowed(5, 6, 7, 8, output_top_logprobs=[[1], [2]]))),
    "tops in front of the end": Refused(
        ProtocolError, ("meta_info.output_top_logprobs: the 2 entries before the abort snapshot are not part of it",),
        (rowed(5, output_top_logprobs=[[1]]),
         rowed(5, 6, 7, finish_reason=ABORTED, prompt_tokens=None, output_top_logprobs=[[9], [9], [1], [2], [3]]))),
    "mode cumulative": Refused(ProtocolError, ("mode='cumulative'", "incremental", "--incremental-streaming-output",
                                               "mode='auto'"), TWO, "cumulative"),
    "mode cumulative, rows": Refused(ProtocolError, ("mode='cumulative'", "output_token_logprobs is incremental"),
                                     (rowed(5), rowed(6, count=2, output_token_logprobs_length=2)), "cumulative"),
    "mode incremental": Refused(ProtocolError, ("mode='incremental'", "output_ids is cumulative", "without"),
                                (chunk(5), chunk(5, 6)), "incremental"),
    # ReplayError: the array, the counts
    "top-p alone": Refused(ReplayError, ("top_p_token_offsets is missing", "top_p_token_ids"),
                           (chunk(5, finish=STOP, top_p_token_ids=""),)),
    "top-p rows": Refused(ReplayError, ("top_p_token_offsets has 3 entries", "1 new tokens"),
                          (chunk(5, finish=STOP, top_p_token_ids=[1, 2], top_p_token_offsets=[0, 1, 2]),)),
    "top-p end": Refused(ReplayError, ("top_p_token_offsets ends at 1", "2"),
                         (chunk(5, finish=STOP, top_p_token_ids=[1, 2], top_p_token_offsets=[0, 1]),)),
    "experts": Refused(ReplayError, ("routed_experts", "3 bytes"), (chunk(5, finish=STOP, routed_experts="AAAA"),)),
    "indexer": Refused(ReplayError, ("indexer_topk",), (chunk(5, finish=STOP, indexer_topk="no base64!"),)),
    # ServerError: the server's own words
    "error": Refused(ServerError, ("too long",), (*TWO, {"error": {"message": "too long", "code": 400}})),
}  # fmt: skip
every_refusal = pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)


@every_refusal
def test_an_accumulator_refuses_and_stays_as_it_was(case: Refused) -> None:
    output = Accumulator(case.mode, index=3)
    for good in case.chunks[:-1]:
        output.add(good)
    before = output.snapshot()
    with pytest.raises(case.error) as caught:
        output.add(case.chunks[-1])
    _is_told(caught.value, case)
    assert dict(caught.value.partial) == {3: before} or case.error is ServerError
    assert shown(output) | {"error": None} == shown(before) | {"error": None, "native": shown(output)["native"]}
    if case.error is not ServerError:
        assert output.snapshot() == before
        assert output.error is None


@every_refusal
def test_a_decoder_returns_what_it_folded_and_raises_then(case: Refused) -> None:
    decoder = GenerateDecoder(mode=case.mode)
    body = b"".join(event(_bytes(one)) for one in case.chunks)
    good = len(case.chunks) - 1
    if good:
        assert len(decoder.feed(body)) == good
        assert type(decoder.error) is case.error
    errors: list[StreamError] = []
    for _ in range(3):
        with pytest.raises(case.error) as caught:
            decoder.feed(body)
        errors.append(caught.value)
    with pytest.raises(case.error) as caught:
        decoder.close()
    errors.append(caught.value)
    assert all(error is decoder.error for error in errors)
    _is_told(errors[0], case)
    assert {i: len(one.token_ids) for i, one in errors[0].partial.items()} == {
        i: len(output.token_ids) for i, output in decoder.outputs.items()
    }
    assert len(decoder.outputs) == (1 if good else 0)


@every_refusal
def test_errors_cross_processes(case: Refused) -> None:
    error = fold([event(_bytes(one)) for one in case.chunks], mode=case.mode).error
    assert error is not None
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert dict(copy.partial) == dict(error.partial)
    assert copy.__dict__.keys() == error.__dict__.keys()


def _is_told(error: StreamError, case: Refused) -> None:
    assert type(error) is case.error
    for words in case.words:
        assert words in str(error), f"{words!r} is not in {error}"
    assert len(str(error)) < 900


def _bytes(payload: Any) -> bytes:
    import json

    return json.dumps(payload).encode()


def test_the_tree_of_errors() -> None:
    values = (EventTooLargeError, PayloadError, ProtocolError, ReplayError, ServerError, SnapshotError)
    assert all(issubclass(kind, StreamError) and issubclass(kind, ValueError) for kind in values)
    assert issubclass(IncompleteStreamError, StreamError)
    assert issubclass(IncompleteStreamError, RuntimeError)
    assert dict(StreamError("x").partial) == {}
    partial = {0: Accumulator().snapshot()}
    assert StreamError("x", partial=partial).partial == partial
    assert isinstance(next(iter(partial.values())), Snapshot)


def test_a_server_error_has_its_words_either_way() -> None:
    told, noted = ServerError(message="no memory"), ServerError("it failed", code=507, type="oom", index=1)
    assert (str(told), told.message, dict(told.partial)) == ("no memory", "no memory", {})
    assert (str(noted), noted.message, noted.code, noted.type, noted.index) == ("it failed", "it failed", 507, "oom", 1)
    partial = {1: Accumulator(index=1).snapshot()}
    both = ServerError("it failed", message="no memory", partial=partial)
    assert (str(both), both.message, both.partial) == ("it failed", "no memory", partial)
