"""Snapshots with a checksum that holds and a content that no release wrote: each field is refused by its name."""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from ssefold import Accumulator, ServerError, Snapshot, SnapshotError
from ssefold.codec import pack
from ssefold.transports.testing import INCREMENTAL, encode
from tests.core.by_hand import exact, fold, shown
from tests.core.corpus import rich
from tests.core.test_errors import STOP, chunk, rowed


def everything() -> Accumulator:
    """An output of which every field holds something."""
    output = Accumulator("incremental", index=2)
    first = rowed(5, text="a", output_token_logprobs=[[-0.5, 5, "a"]], output_top_logprobs=[[-0.5, 5]])
    first["meta_info"] |= {"routed_experts": [1, 2], "indexer_topk": [3]}
    first["meta_info"] |= {"top_p_token_ids": [5, 6], "top_p_token_offsets": [0, 2]}
    output.add({**first, "prompt_token_ids": [1]})
    output.fail(ServerError("it failed", message="no memory", code=507, type="oom", index=2))
    return output


def test_a_state_of_everything_comes_back() -> None:
    output = everything()
    twin = Accumulator.restore(Snapshot.from_bytes(output.snapshot().to_bytes()))
    assert shown(twin) == shown(output)
    assert shown(output.snapshot()) == shown(output) | {"native": None}
    assert twin.snapshot() == output.snapshot()
    assert exact(twin.state.to_plain()) == exact(output.state.to_plain())
    assert twin.error is not None
    assert (str(twin.error), twin.error.message, twin.error.code, twin.error.type, twin.error.index) == (
        "it failed", "no memory", 507, "oom", 2,
    )  # fmt: skip
    assert twin.indexer_topk is not None
    assert (twin.indexer_topk.field, list(twin.indexer_topk.values)) == ("indexer_topk", [3])
    assert twin.routed_experts is not None
    assert (twin.routed_experts.field, list(twin.routed_experts.values)) == ("routed_experts", [1, 2])
    assert twin.top_p is not None
    assert [list(twin.top_p.kept(at)) for at in range(len(twin.top_p))] == [[5, 6]]


def test_what_is_restored_goes_on_as_the_original() -> None:
    events = encode(rich(9), INCREMENTAL).events
    whole = fold(events).outputs[0]
    half = Accumulator.restore(Snapshot.from_bytes(fold(events[:4]).outputs[0].snapshot().to_bytes()))
    for data in events[4:-1]:
        half.add(json.loads(data.partition(b"data: ")[2]))
    assert shown(half) == shown(whole)


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, tuple[Change, str]] = {
    "a field less": (lambda plain: plain.pop("count"), r"the state has other fields than it must: \['count'\]"),
    "a field more": (lambda plain: plain.update(x=1), r"the state has other fields than it must: \['x'\]"),
    "mode": (lambda plain: plain.update(mode="both"), "the state: field mode cannot be a str"),
    "mode null": (lambda plain: plain.update(mode=None), "field mode cannot be a NoneType"),
    "index": (lambda plain: plain.update(index=-1), "field index cannot be a int"),
    "index true": (lambda plain: plain.update(index=True), "field index cannot be a bool"),
    "token_ids": (lambda plain: plain.update(token_ids=array("i", [5])), "field token_ids cannot be a array"),
    "token_ids a list": (lambda plain: plain.update(token_ids=[5]), "field token_ids cannot be a list"),
    "logprobs": (lambda plain: plain.update(logprobs=array("q", [5])), "field logprobs cannot be a array"),
    "row_texts": (lambda plain: plain.update(row_texts=[7]), "field row_texts cannot be a list"),
    "row_texts an object": (lambda plain: plain.update(row_texts={}), "field row_texts cannot be a dict"),
    "row_width": (lambda plain: plain.update(row_width=4), "field row_width cannot be a int"),
    "row_width a float": (lambda plain: plain.update(row_width=3.0), "field row_width cannot be a float"),
    "text": (lambda plain: plain.update(text="a"), "field text cannot be a str"),
    "ids_lane": (lambda plain: plain.update(ids_lane="both"), "field ids_lane cannot be a str"),
    "rows_lane": (lambda plain: plain.update(rows_lane=[]), "field rows_lane cannot be a list"),
    "ids_sent": (lambda plain: plain.update(ids_sent=1), "field ids_sent cannot be a int"),
    "rows_sent": (lambda plain: plain.update(rows_sent=None), "field rows_sent cannot be a NoneType"),
    "extras": (lambda plain: plain.update(extras=[]), "field extras cannot be a list"),
    "meta": (lambda plain: plain.update(meta=None), "field meta cannot be a NoneType"),
    "other": (lambda plain: plain.update(other=7), "field other cannot be a int"),
    "count": (lambda plain: plain.update(count=-1), "field count cannot be a int"),
    "begun": (lambda plain: plain.update(begun=0), "field begun cannot be a int"),
    "finish": (lambda plain: plain.update(finish=7), "field finish cannot be a int"),
    "error": (lambda plain: plain.update(error="x"), "field error cannot be a str"),
    "top_p of one": (lambda plain: plain["top_p"].pop(), "field top_p cannot be a list"),
    "top_p an object": (lambda plain: plain.update(top_p={"a": 1, "b": 2}), "field top_p cannot be a dict"),
    "routed_experts": (lambda plain: plain.update(routed_experts=[1]), "field routed_experts cannot be a list"),
    "indexer_topk": (lambda plain: plain.update(indexer_topk=b"abcd"), "field indexer_topk cannot be a bytes"),
    "more logprobs than ids": (
        lambda plain: plain["logprobs"].append(0.5), "logprobs has 2 entries for 1 token_ids"),
    "other texts than logprobs": (
        lambda plain: plain["row_texts"].append("b"), "row_texts has 2 entries for 1 logprobs"),
    "text: a field less": (lambda plain: plain["text"].pop("marks"), r"text has other fields than .* \['marks'\]"),
    "text: text": (lambda plain: plain["text"].update(text=None), "text: field text cannot be a NoneType"),
    "text: lane": (lambda plain: plain["text"].update(lane="x"), "text: field lane cannot be a str"),
    "text: sure": (lambda plain: plain["text"].update(sure=1), "text: field sure cannot be a int"),
    "text: marks": (lambda plain: plain["text"].update(marks=[1, -1]), "text: field marks cannot be a list"),
    "text: marks a string": (lambda plain: plain["text"].update(marks="1"), "text: field marks cannot be a str"),
    "extras: no object": (
        lambda plain: plain["extras"].update(mine=[1]), r"extras\.mine must be an object, found list"),
    "extras: a field less": (
        lambda plain: plain["extras"]["output_top_logprobs"].pop("lane"), r"extras\.output_top_logprobs has other"),
    "extras: items": (
        lambda plain: plain["extras"]["output_top_logprobs"].update(items={}), "field items cannot be a dict"),
    "error: a field more": (lambda plain: plain["error"].update(x=1), r"error has other fields than it must: \['x'\]"),
    "error: message": (lambda plain: plain["error"].update(message=None), "error: field message cannot be"),
    "error: code": (lambda plain: plain["error"].update(code=1.5), "error: field code cannot be a float"),
    "error: index": (lambda plain: plain["error"].update(index=-1), "error: field index cannot be a int"),
    # found by what is made of it
    "top-p rows that do not fit": (
        lambda plain: plain.update(top_p=[memoryview(array("i", [5])), memoryview(array("i", [0, 2]))]), "ends at 2"),
    "top-p null": (lambda plain: plain.update(top_p=[None, None]), "top_p_token_ids is missing"),
    "a finish_reason of nothing": (lambda plain: plain.update(finish={}), "finish_reason"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_a_field_that_no_release_wrote(change: Change, says: str) -> None:
    plain = everything().state.to_plain()
    change(plain)
    with pytest.raises(SnapshotError, match=f"^the snapshot's checksum holds but its content does not fit: .*{says}"):
        Snapshot.from_bytes(pack("output", plain))


@pytest.mark.parametrize("plain", [None, [], "x", 7])
def test_a_content_that_is_no_object(plain: Any) -> None:
    with pytest.raises(SnapshotError):
        Snapshot.from_bytes(pack("output", plain))


def test_texts_of_rows_may_be_absent_or_null() -> None:
    for texts in (None, [None], ["a"]):
        plain = everything().state.to_plain() | {"row_texts": texts, "count": None, "finish": "stop"}
        assert exact(Snapshot.from_bytes(pack("output", plain)).copy_state().to_plain()["row_texts"]) == exact(texts)


def test_a_snapshot_is_a_value() -> None:
    output = Accumulator(index=1)
    output.add(chunk(5, text="a"))
    snapshot = output.snapshot()
    assert snapshot == output.snapshot()
    assert hash(snapshot) == hash(output.snapshot())
    assert snapshot != 7
    assert snapshot != snapshot.to_bytes()
    assert repr(snapshot) == "Snapshot(index=1, tokens=1, finish_reason=None)"
    output.add(chunk(6, count=2, text="b", finish=STOP))
    assert snapshot != output.snapshot()
    assert repr(output.snapshot()) == "Snapshot(index=1, tokens=2, finish_reason='stop')"
    assert repr(output) == "Accumulator(index=1, tokens=2, finish_reason='stop')"
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
