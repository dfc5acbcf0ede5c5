"""Files that the command writes: nothing of the user's is lost to a failure, and nothing is replaced unasked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.reading import SUFFIX
from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel

from .conftest import DONE, STOP, Run, chunk, event

GOOD = event(chunk(1, finish=STOP)) + DONE
PAYLOAD = json.dumps({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 5}})
MINE = b"a recording of mine"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize(
    "fault",
    [Fault(refuse=True), Fault(status=404, body=b"no such route"), Fault(status=503), Fault(cut_at=0)],
    ids=["refused", "404", "503", "cut"],
)
def test_a_record_that_fails_leaves_what_was_there(fault: Fault, force: list[str], run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    out.write_bytes(MINE)
    with FakeSGLang(GreedyModel()) as server:
        server.fault_next(fault)
        ran = run("record", f"{server.url}/generate", "--payload", "-", "-o", out, *force, input=PAYLOAD)
    assert ran.status == (1 if force else 2)
    assert out.read_bytes() == MINE
    assert names(tmp_path) == ["out.sse"]


def test_a_connection_that_is_refused_leaves_what_was_there(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    out.write_bytes(MINE)
    url = "http://127.0.0.1:1/generate"
    assert run("record", url, "--payload", "-", "-o", out, "--force", input=PAYLOAD).status == 1
    assert out.read_bytes() == MINE


def test_a_recording_is_replaced_only_by_force(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    out.write_bytes(MINE)
    with FakeSGLang(GreedyModel()) as server:
        url = f"{server.url}/generate"
        ran = run("record", url, "--payload", "-", "-o", out, input=PAYLOAD)
        assert ran.status == 2
        assert "--force" in ran.err
        assert server.seen == []
        assert out.read_bytes() == MINE
        ran = run("record", url, "--payload", "-", "-o", out, "--force", input=PAYLOAD)
    assert ran.status == 0
    assert f"wrote {out} and {out}{SUFFIX}\n" in ran.err
    assert out.read_bytes().endswith(DONE)
    assert names(tmp_path) == ["out.sse", "out.sse" + SUFFIX]


def test_an_http_error_is_shown_and_not_recorded(run: Run, tmp_path: Path) -> None:
    with FakeSGLang(GreedyModel()) as server:
        server.fault_next(Fault(status=404, body=b'{"detail":"Not Found"}'))
        ran = run("record", f"{server.url}/generate", "--payload", "-", "-o", tmp_path / "out.sse", input=PAYLOAD)
    assert ran.status == 1
    assert 'status 404, nothing recorded; the server says: {"detail":"Not Found"}' in ran.err
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [["convert", "{}", "--to", "native", "-o"], ["anonymize", "{}", "-o"], ["inspect", "{}", "--html"]],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("how", ["itself", "a link to it"])
def test_an_output_that_is_the_input_is_refused(arguments: list[str], how: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(GOOD)
    other = path
    if how == "a link to it":
        other = tmp_path / "b.sse"
        other.symlink_to(path)
    ran = run(*(part.format(path) for part in arguments), other)
    assert ran.status == 2
    assert "is read: give another file" in ran.err
    assert path.read_bytes() == GOOD


def test_a_payload_is_not_overwritten_by_its_recording(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_text(PAYLOAD)
    ran = run("record", "http://127.0.0.1:1/", "--payload", path, "-o", path, "--force")
    assert ran.status == 2
    assert path.read_text() == PAYLOAD


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\0\1\2", b'{"error": "boom"}'])
@pytest.mark.parametrize(
    "arguments",
    [["convert", "-", "--to", "native"], ["convert", "-", "--to", "cumulative"], ["anonymize", "-"]],
    ids=" ".join,
)
def test_what_is_no_stream_gives_its_reason_and_nothing_is_written(
    arguments: list[str], body: bytes, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_bytes(MINE)
    ran = run(*arguments, "-o", out, input=body)
    assert ran.status == 1
    assert ran.err.startswith("ssefold: -: ")
    assert ran.err.count("\n") == 1
    assert out.read_bytes() == MINE
    assert run(*arguments, input=body).out == ""
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b'{"error": "boom"}', event(chunk(1))])
def test_two_that_cannot_be_read_are_not_called_the_same(body: bytes, run: Run, tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_bytes(body)
    other.write_bytes(body)
    ran = run("diff", one, other)
    assert ran.status == 1
    assert "the same" not in ran.out
    assert ran.err.count("\n") == 2
    plain = run("diff", one, other, "--json").json
    assert plain["same"] is False
    assert all(error["code"].startswith("SG") for error in plain["errors"])


def test_what_was_written_is_named(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "a.sse", tmp_path / "b.sse"
    path.write_bytes(GOOD)
    assert run("convert", path, "--to", "native", "-o", out).err == f"wrote {out}\n"
    assert run("anonymize", path, "-o", out).err == f"wrote {out}\n"
    assert run("inspect", path, "--html", out).err == f"wrote {out}\n"


@pytest.mark.skipif(os.name == "nt", reason="there are no such files there")
def test_links_modes_and_devices_stay_what_they_are(run: Run, tmp_path: Path) -> None:
    path, real, link = tmp_path / "a.sse", tmp_path / "real", tmp_path / "link"
    path.write_bytes(GOOD)
    real.write_bytes(MINE)
    real.chmod(0o640)
    link.symlink_to(real)
    assert run("convert", path, "--to", "native", "-o", link).status == 0
    assert link.is_symlink()
    assert real.read_bytes() != MINE
    assert real.stat().st_mode & 0o777 == 0o640
    assert run("convert", path, "--to", "native", "-o", "/dev/null").status == 0
    assert not Path("/dev/null").is_file()
