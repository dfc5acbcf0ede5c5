"""What bounds a stream, one test a limit: ``docs/security.md`` has the table.

Sizes of events to the byte are in ``sse/test_bounds``, spellings of numbers and depths of JSON in
``fold/test_payload.py``, base64 and its memory in ``replay/test_int32.py``, containers of snapshots in
``codec/test_container.py``, compression and outputs that nobody asked for in ``tests/transports``.  Here: the same
limits through the decoder, on both paths, and what is held of bodies that try to fill the memory.
"""

from __future__ import annotations

import gc
import inspect
import json
import tracemalloc
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator

import pytest

from ssefold import (
    EventTooLargeError,
    GenerateDecoder,
    PayloadError,
    ProtocolError,
    Snapshot,
    SSEParser,
    StreamError,
    limits,
)
from ssefold.transports.testing import CUMULATIVE, INCREMENTAL, PROFILES, eager, encode, interval_sends
from tests.core.by_hand import Folded, each_byte, exact, fold
from tests.core.corpus import cases, finite

KIB = 1024


def chunk(count: int, *, ids: list[int] | None = None, meta: str = "", top: str = "", text: str = "x") -> bytes:
    """A chunk of an incremental stream: the token ``count`` - 1, or these."""
    listed = [count - 1] if ids is None else ids
    return (
        f'data: {{"text":{json.dumps(text)},"output_ids":{json.dumps(listed)},"meta_info":{{"id":"r","finish_reason":'
        f'null,"prompt_tokens":1,"completion_tokens":{count}{meta}}}{top}}}\n\n'
    ).encode()


def held(reads: Iterable[bytes], **options: object) -> int:
    """Bytes that a decoder holds after these reads, whose updates are dropped; what it raised is dropped, too."""
    GenerateDecoder().feed(chunk(1))  # whatever is made once in a process is made now
    gc.collect()
    tracemalloc.start()
    try:
        decoder = GenerateDecoder(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for read in reads:
            try:
                decoder.feed(bytes(memoryview(read)))
            except StreamError as error:
                error.__traceback__ = None
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


# ---- event size -----------------------------------------------------------------------------------------------------


def test_every_stream_has_a_bound_unless_asked_otherwise() -> None:
    for kind in (SSEParser, GenerateDecoder):
        assert inspect.signature(kind).parameters["max_event_size"].default == 256 * KIB * KIB


@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental"])
def test_the_bound_holds_whichever_way_an_event_goes(profile: str) -> None:
    case = next(case for case in cases(PROFILES[profile]) if case.name.endswith("scored"))
    events = case.body.events
    sizes = [len(event) - len(b"data: \n\n") for event in events]
    largest = max(sizes)
    first_too_large = sizes.index(largest)
    whole = b"".join(events)
    allowed, before = fold(events), fold(events[:first_too_large])
    for reads in ([whole], events, each_byte(whole)):
        assert fold(reads, max_event_size=largest).told == allowed.told
        refused = fold(reads, max_event_size=largest - 1)
        assert isinstance(refused.error, EventTooLargeError)
        assert refused.updates == before.updates


# ---- depth and numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["meta", "top"])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["arrays", "objects"])
def test_json_has_at_most_100_levels(place: str, brackets: tuple[str, str]) -> None:
    above = 2 if place == "meta" else 1
    for levels in (100, 101):
        deep = f',"x":{brackets[0] * (levels - above)}1{brackets[1] * (levels - above)}'
        folded = fold([chunk(1), chunk(2), chunk(3, meta=deep) if place == "meta" else chunk(3, top=deep)])
        output = folded.outputs[0]
        if levels == 100:
            assert list(output.token_ids) == [0, 1, 2]
            assert Snapshot.from_bytes(output.snapshot().to_bytes()) == output.snapshot()
        else:
            assert isinstance(folded.error, PayloadError)
            assert "nested more than 100 deep" in str(folded.error)
            assert list(output.token_ids) == [0, 1]


@pytest.mark.parametrize(
    ("build", "largest"),
    [
        (lambda number: chunk(1, ids=[number]), 2**63 - 1),
        (
            lambda number: chunk(
                1, ids=[], meta=f',"output_token_logprobs":[[-1,{number},null]],"output_token_logprobs_length":1'
            ),
            2**63 - 1,
        ),
        (lambda number: chunk(1, top=f',"index":{number}'), 2**64 - 1),
    ],
    ids=["output_ids", "rows", "index"],
)
def test_whole_numbers_have_a_largest(build: Callable[[int], bytes], largest: int) -> None:
    taken = fold([build(largest)])
    (output,) = taken.outputs.values()
    assert largest in (output.index, *output.token_ids)
    assert Snapshot.from_bytes(output.snapshot().to_bytes()).index == output.index
    for number in (largest + 1, 2**70, 10**400):
        refused = fold([build(number)])
        assert isinstance(refused.error, PayloadError), number
        assert not refused.outputs


@pytest.mark.parametrize("number", [2**63, 2**64, 10**400])
def test_counters_have_a_largest(number: int) -> None:
    rows = ',"output_token_logprobs":[[-1,1,null]],"output_token_logprobs_length":'
    for bad in (chunk(number, ids=[1]), chunk(2, meta=rows + str(number))):
        refused = fold([chunk(1), bad])
        assert isinstance(refused.error, PayloadError)
        assert list(refused.outputs[0].token_ids) == [0]


# ---- what is held ---------------------------------------------------------------------------------------------------


def _repeated(build: Callable[[int], bytes], many: int = 60) -> Iterator[bytes]:
    return (build(at) for at in range(1, many + 1))


def _int32(count: int) -> str:
    return b64encode(array("i", [1] * count).tobytes()).decode()


BIG = "y" * 20_000
ROUTED = f',"routed_experts":"{_int32(5000)}"'


@pytest.mark.parametrize(
    "build",
    [
        lambda at: chunk(at, meta=f',"note":"{BIG}{at}"'),
        lambda at: chunk(at, top=f',"note":"{BIG}{at}"'),
        lambda at: chunk(at, meta=f',"input_token_logprobs":[[-1,{at},"{BIG}"]]'),
        lambda at: chunk(at, meta=ROUTED),
        lambda at: b": " + BIG.encode() + b"\n\n",
        lambda at: b"unknown: " + BIG.encode() + b"\n",
        lambda at: b"event: x\nid: " + BIG.encode() + b"\n\n",
    ],
    ids=["meta_info", "beside meta_info", "prompt rows", "replay arrays", "comments", "unknown fields", "ids"],
)
def test_of_values_that_come_again_the_last_is_held(build: Callable[[int], bytes]) -> None:
    """The payload itself, what was parsed of it, and the text that a suffix is cut by: a few times a chunk's size."""
    assert held(_repeated(build)) < 6 * len(build(1)) + 20_000


def test_json_that_is_skipped_is_not_held() -> None:
    assert held(_repeated(lambda at: b"data: {" + BIG.encode() + b"\n\n"), on_bad_json="skip") < 50_000


def test_nothing_behind_a_failure_is_held() -> None:
    assert held([chunk(1), b"data: nonsense\n\n", *_repeated(lambda at: chunk(at, text=BIG))]) < 100_000


@pytest.mark.parametrize(
    ("build", "most"),
    [
        (chunk, 40),
        (lambda at: chunk(1, ids=[1], top=f',"index":{at}'), 2_500),
        (lambda at: b'data: {"error":"x","index":%d}\n\n' % at, 2_500),
        (lambda at: chunk(at, meta=f',"key{at}":{at}'), 400),
    ],
    ids=["tokens", "outputs", "failed outputs", "keys"],
)
def test_what_grows_grows_with_the_bytes_and_by_no_more_than(build: Callable[[int], bytes], most: int) -> None:
    """Tokens, outputs and keys have no limit but the caller's own; each has a price, and the price is bounded."""
    small, large = (held(_repeated(build, many)) for many in (300, 600))
    assert (large - small) / 300 < most


def test_parsed_json_takes_so_many_times_its_bytes() -> None:
    """The dearest that is known: lists of empty objects, 24 bytes held and some 50 at the peak for each byte."""
    reads = [chunk(1, meta=',"x":[' + ",".join(["{}"] * 50_000) + "]")]
    assert held(reads) < 40 * len(reads[0])


def test_a_base64_text_is_bounded_by_its_event() -> None:
    size = len(chunk(1, meta=ROUTED)) - len(b"data: \n\n")
    assert fold([chunk(1, meta=ROUTED)], max_event_size=size).outputs[0].routed_experts is not None
    assert isinstance(fold([chunk(1, meta=ROUTED)], max_event_size=size - 1).error, EventTooLargeError)


def test_one_chunk_may_bring_any_number_of_tokens_that_fits_its_event() -> None:
    folded: Folded = fold([chunk(100_000, ids=list(range(100_000)))])
    assert exact(folded.outputs[0].token_ids[-2:]) == "[99998,99999]"


# ---- outputs and tokens ---------------------------------------------------------------------------------------------


def test_outputs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.MAX_OUTPUTS == 65_536
    monkeypatch.setattr("ssefold.outputs.MAX_OUTPUTS", 3)
    events = [chunk(1, top=f',"index":{index}') for index in (0, 7, 2, 9)]
    folded = fold(events)
    assert isinstance(folded.error, ProtocolError)
    assert "index 9 would be output number 4 of one response, 3 are taken at most" in str(folded.error)
    assert set(folded.outputs) == {0, 7, 2}
    assert len(folded.updates) == 3
    failure = b'data: {"error":{"message":"m"},"index":9}\n\n'
    assert "output number 4" in str(fold([*events[:3], failure]).error)
    assert fold([*events[:3], chunk(2, top=',"index":7')]).outputs[7].token_ids[:] == (0, 1)


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("interval", [1, 3])
def test_tokens_are_bounded_whichever_way_they_go(
    monkeypatch: pytest.MonkeyPatch, incremental: bool, interval: int
) -> None:
    assert limits.MAX_TOKENS == 16_777_216
    for module in ("fold.plan", "fast.values"):
        monkeypatch.setattr(f"ssefold.{module}.MAX_TOKENS", 61, raising=False)
    body = encode(finite(99), INCREMENTAL if incremental else CUMULATIVE, eager([interval_sends(99, interval)])).events
    for reads in (body, [b"".join(body)]):
        folded = fold(reads)
        assert isinstance(folded.error, ProtocolError)
        assert "tokens, 61 are taken at most" in str(folded.error)
        assert len(folded.outputs[0].token_ids) == 61
        assert [token for update in folded.updates for token in update.token_ids] == list(finite(99).token_ids[:61])
