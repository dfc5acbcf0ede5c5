"""Baselines, peers and the library come to the same from the same bytes; else their times would not compare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import BareBytes, ByteLines, Fold, TextLines
from tests.benchmarks.bodies import blocks, body_of, cut, events_of_size, make_answer
from tests.benchmarks.fold_speed import FOLDS, OURS, Shape, available, check, result_of, run
from tests.benchmarks.peers import PEERS, ours, ours_as_text, parser_of

BASELINES = [name for name in FOLDS if name != OURS]


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("interval", [1, 8, 20])
@pytest.mark.parametrize("read", [1, 61, 4096, None])
def test_a_baseline_gives_what_the_library_gives(name: str, incremental: bool, interval: int, read: int | None) -> None:
    if name not in available():
        pytest.skip(f"the {name} needs a package that is not installed")
    answer = make_answer(40)
    baseline, decoder = available()[name](), GenerateDecoder()
    deltas: list[tuple[list[int], list[float | None], str | None]] = []
    updates: list[tuple[list[int], list[float | None], str | None]] = []
    for reads in blocks(body_of(answer, interval=interval, incremental=incremental), read):
        for data in reads:
            deltas += baseline.feed(data)
            updates += [(list(one.token_ids), list(one.logprobs), one.text) for one in decoder.feed(data)]
    decoder.close()
    assert [delta[:2] for delta in deltas] == [update[:2] for update in updates]
    if name != "tuned orjson" or incremental:  # it does not look for what is new in the text
        assert deltas == updates
    assert result_of(baseline) == result_of(decoder) == (list(answer.ids), list(answer.logprobs), answer.text)
    assert baseline.finish_reason == {"type": "length", "length": 40}


def test_a_wrong_fold_ends_the_run() -> None:
    right, wrong = (Fold(TextLines().feed, lambda _: ("", [], 0, None)) for _ in range(2))
    answer = make_answer(3)
    right.ids, right.logprobs = list(answer.ids), list(answer.logprobs)
    right.feed(b"")
    right._pieces = [answer.text]
    check("right", right, answer)
    with pytest.raises(ValueError, match="wrong: not the answer of 3 tokens"):
        check("wrong", wrong, answer)


def test_a_baseline_notices_a_lost_chunk() -> None:
    body = list(body_of(make_answer(9), incremental=True))
    fold = available()["json baseline"]()
    with pytest.raises(ValueError, match="1 rows, 3 known, 5 in all"):
        fold.feed(b"".join(body[:3] + body[4:]))


@given(st.text(alphabet="ab \n\u2028\u00e9\x85\x0c").map(lambda text: text + "\n"), st.data())
def test_text_lines_are_those_of_the_whole_text(text: str, data: st.DataObject) -> None:
    lines = TextLines()
    body = text.encode()
    found = [line for part in cut(body, data.draw(st.integers(1, len(body)))) for line in lines.feed(part)]
    assert found == text.splitlines()


@given(st.text(alphabet="ab\n\u2028").map(lambda text: text.encode() + b"\n"), st.data())
def test_byte_lines_are_those_of_the_whole_body(body: bytes, data: st.DataObject) -> None:
    lines = ByteLines()
    found = [line for part in cut(body, data.draw(st.integers(1, len(body)))) for line in lines.feed(part)]
    assert found == body.split(b"\n")[:-1]


@pytest.mark.parametrize("read", [1, 100, 65_536])
def test_bare_bytes_frame_every_event(read: int) -> None:
    answer = make_answer(30)
    bare = BareBytes()
    for reads in blocks(body_of(answer), read):
        for data in reads:
            bare.feed(data)
    assert bare.events == 31  # [DONE] is one


def test_a_run_says_how_many_bytes_it_had_and_times_everybody() -> None:
    runs: dict[str, list[float]] = {}
    size = run(Shape(40, 1, incremental=False), list(available()), runs, turn=1)
    assert size == sum(map(len, body_of(make_answer(40))))
    assert {name: len(seconds) for name, seconds in runs.items()} == dict.fromkeys(available(), 1)


@pytest.mark.parametrize("tokens", [512, 4096])
@pytest.mark.parametrize("incremental", [False, True])
def test_sizes_are_estimated_well_enough(tokens: int, incremental: bool) -> None:
    shape = Shape(tokens, 20, incremental)
    size = sum(map(len, body_of(make_answer(tokens), interval=20, incremental=incremental)))
    assert 0.8 < shape.about_bytes / size < 1.25


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("size", [200, 20_000])
@pytest.mark.parametrize("read", [64, 1460, 65_536])
def test_a_peer_gives_the_same_events(peer: str, size: int, read: int) -> None:
    parse = parser_of(peer)
    if parse is None:
        pytest.skip(f"{peer} is not installed")
    events = events_of_size(size, 3 * size)
    reads = cut(b"".join(events), read)
    assert parse(reads) == ours_as_text(reads) == [event[6:-2].decode() for event in events]
    assert ours(reads) == [event[6:-2] for event in events]
