"""slime reads a stream line by line: so does its adapter, in whatever pieces the body comes."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import SSEParser
from ssefold.adapters.slime.lines import LineEvents

from ..fakes import LENGTH, STOP, bytes_response, stream_of
from .runs import Run

CHUNKS = stream_of([11, 12, 13], incremental=True, finish=STOP)
LINES = [b"data: " + json.dumps(item).encode() for item in CHUNKS]


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7, 50])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "body",
    [
        [*LINES, b"data: [DONE]", b""],
        [LINES[0], LINES[1], b"", LINES[2], b"", b""],
        [b"data: {oops", *LINES, b"", b""],
        [LINES[0], b"", b"data: {oops", LINES[1], LINES[2], b"", b""],
        [LINES[0], b"id: 7", LINES[1], b": comment", LINES[2], b"data:", b"", b""],
    ],
    ids=["no blank lines", "some glued", "a stray line first", "a stray line between", "other lines between"],
)
def test_lines_without_blank_lines_between(slime: Any, body: list[bytes], end: bytes, cut: int) -> None:
    sample = Run(slime, bytes_response([end.join(body)], cut=cut))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response) == ([1, 2, 11, 12, 13], "<11><12><13>")
    assert sample.status == slime.Sample.Status.COMPLETED


def test_a_stray_line_is_told(slime: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Run(slime, bytes_response([b"data: {oops\n", *CHUNKS]))(slime.Sample(prompt="p"))
    [record] = caplog.records
    assert record.getMessage() == "sglang_streaming: skipping non-JSON chunk: '{oops'"


PIECES = st.sampled_from([b"data: {1}", b"data:", b"dat", b"id: 1", b"", b"\n", b"\n", b"\r\n", b"x", b"event: error"])


def events_of(reads: list[bytes]) -> list[tuple[str, bytes]]:
    lines, parser = LineEvents(), SSEParser()
    return [
        (event.event, event.data_bytes)
        for read in reads
        for event in parser.feed(lines.split(read))
        if event.data_bytes
    ]


@given(st.lists(PIECES, max_size=14).map(b"".join), st.lists(st.integers(0, 60), max_size=6))
def test_any_cut_gives_the_same_events_and_every_data_line_is_one(body: bytes, cuts: list[int]) -> None:
    places = sorted({0, *(at for at in cuts if at < len(body)), len(body)})
    body_end = b"\n\n"
    reads = [body[a:b] for a, b in pairwise(places)]
    found = events_of([*reads, body_end])
    assert found == events_of([body + body_end])
    lines = (body + body_end).replace(b"\r\n", b"\n").split(b"\n")
    told = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    assert [data for _, data in found] == [data for data in told if data]


@given(st.lists(st.integers(5, 99), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 80))
def test_what_is_as_it_should_be_passes_unchanged(tokens: list[int], step: int, cut: int) -> None:
    chunks = stream_of(tokens, incremental=True, step=step, finish=LENGTH)
    body = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in chunks)
    lines = LineEvents()
    assert b"".join(lines.split(body[at : at + cut]) for at in range(0, len(body), cut)) == body


def test_an_error_event_stays_one(slime: Any) -> None:
    with pytest.raises(ValueError, match="out of memory"):
        Run(slime, bytes_response([b'event: error\ndata: {"message": "out of memory"}\n\n']))(slime.Sample(prompt="p"))
