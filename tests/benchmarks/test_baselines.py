"""Baselines, peers and the library come to the same from the same bytes; else their times would not compare."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import ByteLines, TextLines
from tests.benchmarks.bodies import (
    CUMULATIVE,
    INCREMENTAL,
    MIXED_0_5_5,
    MIXED_0_5_10,
    Form,
    blocks,
    body_of,
    cut,
    events_of_size,
    make_answer,
)
from tests.benchmarks.fold_speed import FOLDS, OURS, Stream, available, check, result_of, times_of
from tests.benchmarks.peers import PEERS, ours, ours_as_text, parser_of
from tests.benchmarks.scale import TINY

LOOPS = [name for name in FOLDS if name != OURS]
FORMS = [
    CUMULATIVE,
    INCREMENTAL,
    MIXED_0_5_5,
    MIXED_0_5_10,
    replace(INCREMENTAL, rows=None),
    replace(CUMULATIVE, text=None),
]


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("interval", [1, 8])
@pytest.mark.parametrize("read", [1, 61, None])
def test_a_loop_gives_what_the_library_gives(name: str, form: Form, interval: int, read: int | None) -> None:
    if name not in available():
        pytest.skip(f"the {name} needs a package that is not installed")
    answer = make_answer(40)
    loop, decoder = available()[name](form), GenerateDecoder()
    for reads in blocks(body_of(answer, interval=interval, form=form), read):
        for data in reads:
            loop.feed(data)
            decoder.feed(data)
            if read is None:
                assert loop.ids == list(decoder.outputs[0].token_ids)
    loop.close()
    decoder.close()
    assert result_of(loop) == result_of(decoder)
    assert loop.finish_reason == {"type": "length", "length": 40}
    check(name, loop, answer, form)


def test_a_wrong_fold_ends_the_run() -> None:
    answer = make_answer(3)
    loop = available()["json loop"]()
    for event in list(body_of(answer))[:-2]:
        loop.feed(event)
    with pytest.raises(ValueError, match="wrong: not the answer of 3 tokens"):
        check("wrong", loop, answer)


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


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_everybody_is_timed_over_the_whole_body(form: Form) -> None:
    times, size = times_of(Stream("", form), available(), TINY)
    assert set(times) == set(available())
    assert size == sum(map(len, body_of(make_answer(TINY.main), form=form)))


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
