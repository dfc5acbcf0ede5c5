"""Reading in pieces: whatever way the bytes are cut, the events and their places are those of the core's parser."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from hypothesis import given
from hypothesis import strategies as st

from ssefold import SSEParser
from ssefold.adapters.cli import terminal
from ssefold.adapters.cli.check import RULES
from ssefold.adapters.cli.reading import Folding, Recording, events_of, fold_recording
from ssefold.transports.testing import PROFILES, Asked, GreedyModel, encode

from .conftest import DATA, STOP, Run, chunk, event
from .test_check import CASES

LINES = st.sampled_from([
    b"data: {}", b"data:", b"data: [DONE]", b"data: a\xe2\x80\xa8b", b": comment", b"event: error", b"id: 1", b"", b"",
    b"",    b"\xef\xbb\xbfdata: 1", b"nonsense",
])  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])


def cut(body: bytes, places: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(min(place, len(body)) for place in places), len(body)]
    return (body[first:last] for first, last in pairwise(edges))


@given(lines=st.lists(st.tuples(LINES, ENDS)), places=st.lists(st.integers(0, 300), max_size=8))
def test_any_cut_gives_the_events_of_the_parser(lines: list[tuple[bytes, bytes]], places: list[int]) -> None:
    body = b"".join(line + end for line, end in lines)
    events = list(events_of(cut(body, places)))
    parser = SSEParser()
    assert [one.data for one in events if one.data is not None] == [one.data_bytes for one in parser.feed(body)]
    assert b"".join(one.raw for one in events) == body
    for one in events:
        assert one.start <= one.offset <= one.end
        assert body[one.start : one.end] == one.raw
    assert all(one.end == other.start for one, other in pairwise(events))


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("profile", PROFILES.values(), ids=str)
def test_the_fast_path_changes_no_finding(profile: object, fast_path: bool) -> None:
    asked = Asked(rid="r", prompt_ids=(5, 6, 7), max_new_tokens=40, return_logprob=True)
    body = encode([GreedyModel()(asked)], profile).data  # type: ignore[arg-type]
    one = fold_recording(Recording("x", body), Folding(fast_path=fast_path), steps=False)
    other = fold_recording(Recording("x", body))
    assert one.findings == other.findings
    assert list(one.outputs[0].token_ids) == list(other.outputs[0].token_ids)
    assert one.steps == []
    assert len(other.steps) == one.events


@pytest.mark.parametrize("path", sorted((DATA / "captures").glob("*.sse.gz")), ids=lambda path: path.name)
def test_gzip_is_undone_piece_by_piece(path: Path) -> None:
    assert Recording(str(path)).read() == gzip.decompress(path.read_bytes())
    assert max(map(len, Recording(str(path)).pieces())) < 2**21


def every_body() -> dict[str, bytes]:
    streams = {path.name: path.read_bytes() for path in sorted((DATA / "streams").glob("*.sse"))}
    return {**CASES, **streams}


@pytest.mark.parametrize("name", every_body())
def test_each_error_is_told_once_and_without_python_names(name: str, run: Run) -> None:
    body = every_body()[name]
    for arguments in (
        ["replay", "-"],
        ["inspect", "-"],
        ["check", "-"],
        ["diff", "-", str(DATA / "streams" / "01_cumulative_single.sse")],
    ):
        ran = run(*arguments, input=body)
        said = ran.out + ran.err
        for word in (".partial", "mode='", "on_bad_json", "max_event_size", "fast_path"):
            assert word not in said, (arguments, word)
        error = run("replay", "-", "--json", input=body).json["error"]
        if error is not None:
            assert error["code"] in RULES
            # In JSON the server's message may hold more blanks than in a line.
            assert " ".join(said.split()).count(" ".join(error["message"].split())) <= 1


def test_codes_of_what_is_no_stream(run: Run) -> None:
    for body, code in (
        (b"<html>502</html>", "SG009"),
        (b"\x89PNG\r\n\x1a\n\0\0", "SG009"),
        (b"Traceback (most recent call last):\n", "SG009"),
        (b'{"a": 1}', "SG009"),
        (b'{"error": {"message": "boom"}}', "SG204"),
        (b'{"object": "error", "message": "boom"}', "SG204"),
        (b'{"detail": "Not Found"}', "SG204"),
        (b'{"choices": []}', "SG010"),
        (event({"choices": [{"delta": {}}]}), "SG010"),
        (event({"candidates": []}), "SG010"),
        (b"", "SG001"),
        (b": ping\n\n", "SG001"),
    ):
        ran = run("check", "--json", "-", input=body)
        assert ran.status == 1
        assert ran.json[0]["error"]["code"] == code, body
        assert code in [finding["code"] for finding in ran.json[0]["findings"]]


def test_what_is_about_the_whole_has_no_byte(run: Run) -> None:
    [checked] = run("check", "--json", "-", input=event(chunk(1, 2))).json
    assert checked["error"]["offset"] is None
    assert [finding["offset"] for finding in checked["findings"] if finding["code"] == "SG201"] == [None]
    assert "byte" not in run("check", "-", input=event(chunk(1, 2))).out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_large_file_is_read_with_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    times = iter(range(100))
    monkeypatch.setattr("ssefold.adapters.cli.terminal.progress.monotonic", lambda: float(next(times)))
    with terminal.reading_line("big.sse", 4_000_000) as tell:
        tell(1_000_000)
    assert "big.sse: 1 of 4 MB, 25%" in seen.getvalue()
    assert seen.getvalue().endswith("\r\x1b[K")
    silent = io.StringIO()
    monkeypatch.setattr(sys, "stderr", silent)
    with terminal.reading_line("big.sse", None) as tell:
        tell(1_000_000)
    assert silent.getvalue() == ""


@pytest.mark.parametrize(("ids", "shown"), [((7,), [""]), ((7, 8, 9), ["┌", "│", "└"])])
def test_tokens_of_one_event_share_its_text(ids: tuple[int, ...], shown: list[str], run: Run) -> None:
    body = event(chunk(*ids, text="abc", finish=STOP))
    lines = run("inspect", "-", "--tokens", input=body).out.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if "token id" in line) + 1 :]
    assert ["".join(char for char in line if char in "┌│└") for line in table] == shown
    assert [line.endswith('"abc"') for line in table] == [False] * (len(ids) - 1) + [True]
    [output] = run("inspect", "-", "--tokens", "--json", input=body).json["outputs"]
    assert [token["of"] for token in output["token_list"]] == [len(ids)] * len(ids)
