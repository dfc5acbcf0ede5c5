"""What people met in their first hour: each test is one thing that went wrong."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold import PayloadError
from ssefold.adapters.cli.reading import SUFFIX, Recording
from ssefold.transports._engine.options import Options
from ssefold.transports._engine.request import prepare
from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel

from .conftest import DONE, STOP, Run, chunk, event, run_process

GOOD = event(chunk(1, finish=STOP)) + DONE
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")


def long_stream() -> bytes:
    return b"".join(event(chunk(at, total=at + 1, text=f"word{at * 7919 % 1009} ")) for at in range(300))


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    packed = gzip.compress(long_stream())
    path = tmp_path / "cut.sse.gz"
    path.write_bytes(packed[: len(packed) // 2])
    return path


def test_the_front_of_a_cut_gzip_recording_is_shown(cut: Path, run: Run) -> None:
    ran = run("replay", cut, "--json")
    assert ran.status == 1
    ids = ran.json["outputs"][0]["token_ids"]
    assert len(ids) > 50
    assert ids == list(range(len(ids)))
    assert ran.err.startswith(f"ssefold: {cut}: the gzip file is not whole: it ends before its end mark")
    assert ran.err.count("\n") == 1
    assert f"{len(ids)}, no logprobs" in run("replay", cut).out


def test_a_cut_gzip_recording_does_not_hide_a_good_one_from_check(cut: Path, run: Run, tmp_path: Path) -> None:
    good = tmp_path / "good.sse"
    good.write_bytes(GOOD)
    ran = run("check", cut, good)
    assert ran.status == 1
    assert f"{good}: nothing remarkable" in ran.out
    assert "SG008 error the gzip file is not whole: it ends before its end mark" in ran.out


def test_a_gzip_recording_that_lost_its_trailer_only_is_not_called_good(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.sse.gz"
    path.write_bytes(gzip.compress(GOOD)[:-5])
    for command in ("replay", "check", "inspect"):
        ran = run(command, path)
        assert ran.status == 1
        assert (ran.out + ran.err).count("it ends before its end mark") == 1
    assert "nothing remarkable" not in run("check", path).out
    assert DONE.decode() not in run("convert", path, "--to", "cumulative").out


def test_a_cut_gzip_recording_is_not_passed_on_as_a_whole_one(cut: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    ran = run("anonymize", cut, "-o", out)
    assert ran.status == 1
    assert "the gzip file is not whole" in ran.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("packed", "torn"),
    [
        (gzip.compress(GOOD[:50]) + gzip.compress(GOOD[50:]), ""),
        (gzip.compress(GOOD) + bytes(512), ""),
        (gzip.compress(GOOD) + b"more", "something else follows it"),
        (gzip.compress(GOOD)[:-8] + bytes(8), "incorrect data check"),
    ],
    ids=["two members", "zeros behind", "something behind", "wrong checksum"],
)
def test_gzip_files_of_every_shape(packed: bytes, torn: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    recording = Recording(str(path))
    body = recording.read()
    assert torn in recording.torn
    assert bool(recording.torn) == bool(torn)
    assert body == GOOD or "check" in torn


def test_a_big_gzip_file_in_members_is_read_whole(tmp_path: Path) -> None:
    noise = b"".join(zlib.crc32(bytes([at % 256, at // 256])).to_bytes(4, "big") for at in range(3000))
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(noise) + gzip.compress(noise[::-1]))
    assert Recording(str(path)).read() == noise + noise[::-1]


@needs_full
@pytest.mark.parametrize(
    "arguments", [["replay", "-"], ["replay", "-", "--json"], ["demo"], ["convert", "-", "--to", "native"]]
)
def test_a_full_standard_output_is_one_line_and_status_2(arguments: list[str]) -> None:
    prelude = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    ran = run_process(*arguments, input=GOOD, prelude=prelude)
    assert ran.status == 2
    assert ran.err == f"ssefold: {arguments[0]} failed: No space left on device\n"


@needs_full
@pytest.mark.parametrize(("argument", "completion"), [("--help", ""), ("--version", ""), ("", "bash_source")])
def test_so_is_one_before_any_subcommand(argument: str, completion: str) -> None:
    prelude = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    ran = run_process(*[argument][: bool(argument)], prelude=prelude, _SSEFOLD_COMPLETE=completion)
    assert ran.status == 2
    assert ran.err == "ssefold: standard output: No space left on device\n"


@pytest.mark.parametrize(
    "arguments", [["convert", "-", "--to", "native", "-o"], ["anonymize", "-", "-o"], ["inspect", "-", "--html"]]
)
def test_a_file_that_can_not_be_written_is_one_line_and_status_2(
    arguments: list[str], run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "nowhere" / "x"
    ran = run(*arguments, out, input=GOOD)
    assert ran.status == 2
    assert ran.err == f"ssefold: {out}: No such file or directory\n"


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
def test_a_closed_pipe_is_quiet_and_one_status() -> None:
    prelude = "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1)"
    for arguments in (["replay", "-", "--json"], ["check", "-"], ["demo"], ["explain"], ["--help"], ["--version"]):
        ran = run_process(*arguments, input=GOOD, prelude=prelude)
        assert (ran.status, ran.err) == (141, ""), arguments
    ran = run_process("convert", "-", "--to", "native", input=GOOD, prelude=prelude)
    assert (ran.status, ran.err) == (141, "")


@pytest.mark.parametrize("url", ["notaurl", "http://[::1", "ftp://host/generate", "http:///generate"])
def test_a_url_that_is_none_is_bad_usage(url: str, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    ran = run("record", url, "--payload", "-", "-o", out, input="{}")
    assert ran.status == 2
    assert "URL" in ran.err
    assert not out.exists()


def test_a_record_that_got_nothing_leaves_nothing(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    with FakeSGLang(GreedyModel()) as server:
        server.fault_next(Fault(refuse=True))
        ran = run("record", f"{server.url}/generate", "--payload", "-", "-o", out, "--json", input='{"text": "a"}')
    assert ran.status == 1
    assert ran.json["output"] is None
    assert not out.exists()
    assert not out.with_name(out.name + SUFFIX).exists()


@pytest.mark.parametrize("rid", [7, ["a", 7], ["a", ""], {"a": 1}, b"ab"])
def test_a_rid_of_a_wrong_type_is_named(rid: Any) -> None:
    with pytest.raises(PayloadError, match="rid must be a str"):
        prepare("http://h/generate", {"text": "a", "rid": rid})


@pytest.mark.parametrize("ids", [7, "12", {"a": 1}])
def test_input_ids_of_a_wrong_type_are_named(ids: Any) -> None:
    with pytest.raises(PayloadError, match="input_ids must be a list"):
        prepare("http://h/generate", {"input_ids": ids})


@pytest.mark.parametrize(
    ("name", "value"),
    [("idle_timeout", "5"), ("idle_timeout", [1]), ("idle_timeout", True), ("abort_timeout", "5"),
     ("abort_timeout", None), ("retries", "1"), ("retries", 1.5), ("retries", None)],
)  # fmt: skip
def test_an_option_of_a_wrong_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Options(**{name: value})


def test_one_token_is_not_tokens(run: Run) -> None:
    assert "1 token came, and no finish_reason" in run("check", "-", input=event(chunk(1))).out


def test_json_that_is_no_response_is_one_message(run: Run) -> None:
    ran = run("replay", "-", input=json.dumps({"a": 1}))
    assert ran.status == 1
    assert ran.out == ""
    assert ran.err.count("\n") == 1
