"""``ssefold record`` and ``serve-fake``: what is recorded is what was sent, and playing it back gives the same."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.reading import SUFFIX
from ssefold.transports.testing import NO_FAULT, PROFILES, FakeSGLang, Fault, GreedyModel

from .conftest import DONE, STOP, Run, chunk, event, run_process

PAYLOAD = {"input_ids": [1, 2, 3], "return_logprob": True, "sampling_params": {"max_new_tokens": 20}}
# Tests that a shell runs in the background ignore Ctrl-C, and so would the processes that they start.
COMMAND = [
    sys.executable,
    "-u",
    "-c",
    (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('ssefold.adapters.cli', run_name='__main__', alter_sys=True)"
    ),
]
TRANSPORTS = ["httpx", "httpx-sync", "aiohttp", "anyio"]


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    path = tmp_path / "payload.json"
    path.write_text(json.dumps(PAYLOAD))
    return path


@pytest.fixture
def server() -> Iterator[FakeSGLang]:
    with FakeSGLang(GreedyModel()) as fake:
        yield fake


def sidecar(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.with_name(path.name + SUFFIX).read_text().splitlines()]


def test_bytes_boundaries_and_times(server: FakeSGLang, payload: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    ran = run("record", f"{server.url}/generate", "--payload", payload, "-o", out, "--json")
    assert ran.status == 0
    assert ran.json["bytes"] == out.stat().st_size
    assert ran.json["tokens"] == 20
    head, *reads, end = sidecar(out)
    assert head["status"] == 200
    assert head["content_type"].startswith("text/event-stream")
    assert end == {"end": "complete"}
    assert sum(size for _, size in reads) == out.stat().st_size
    assert [time for time, _ in reads] == sorted(time for time, _ in reads)
    replayed = run("replay", "--json", out).json
    [script] = server.truth(PAYLOAD)
    assert replayed["outputs"][0]["token_ids"] == list(script.token_ids)
    assert run("inspect", "--json", out).json["timeline"]["ttft"] == round(ran.json["ttft"], 6)


def test_the_request_is_the_payload_as_a_stream_with_an_id(server: FakeSGLang, payload: Path, run: Run) -> None:
    run("record", f"{server.url}/generate", "--payload", payload, "-H", "Authorization: Bearer x", "-H", "X-A:b")
    [seen] = server.seen
    assert {key: seen.json[key] for key in PAYLOAD} == PAYLOAD
    assert seen.json["stream"] is True
    assert len(seen.json["rid"]) == 32
    assert seen.headers["authorization"] == "Bearer x"
    assert seen.headers["x-a"] == "b"
    assert seen.headers["accept"] == "text/event-stream"


def test_piped_on_it_is_nothing_but_the_bytes(server: FakeSGLang) -> None:
    url = f"{server.url}/generate"
    ran = run_process("record", url, "--payload", "-", input=json.dumps(PAYLOAD).encode())
    assert ran.status == 0
    assert ran.out.endswith("data: [DONE]\n\n")
    assert "20 tokens" in ran.err
    assert run_process("replay", "-", input=ran.out.encode()).status == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            Fault(status=503, body=b'{"error":"full"}'),
            'status 503, nothing recorded; the server says: {"error":"full"}',
        ),
        (Fault(content_type="text/html"), "the content type is text/html"),
        (Fault(refuse=True), "after 0 bytes"),
        (Fault(cut_at=700), "after 700 bytes"),
    ],
)
def test_what_goes_wrong_is_one_line_and_what_came_is_kept(
    fault: Fault, reason: str, server: FakeSGLang, payload: Path, run: Run, tmp_path: Path
) -> None:
    server.fault_next(fault)
    out = tmp_path / "out.sse"
    ran = run("record", f"{server.url}/generate", "--payload", payload, "-o", out, "--json")
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert reason in ran.err
    assert ran.json["error"]
    assert (out.stat().st_size if out.exists() else 0) == ran.json["bytes"]
    if fault.cut_at:
        assert sidecar(out)[-1]["end"] != "complete"
        assert run("replay", out).status == 1


def test_a_url_without_the_route_is_told_so(server: FakeSGLang, payload: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    hint = "the URL needs its route, as in http://host:port/generate"
    for url in (server.url, f"{server.url}/", f"{server.url}/health"):
        ran = run("record", url, "--payload", payload, "-o", out, "--json")
        assert (ran.status, ran.err.count("\n")) == (1, 1)
        assert hint in ran.err
    server.fault_next(Fault(status=404))
    assert hint not in run("record", f"{server.url}/generate", "--payload", payload, "-o", out).err
    assert not out.exists()


def test_a_stream_that_can_not_be_folded_is_recorded_all_the_same(
    server: FakeSGLang, payload: Path, run: Run, tmp_path: Path
) -> None:
    server.fault_next(Fault(junk=b"data: {nonsense}\n\n"))
    out = tmp_path / "out.sse"
    ran = run("record", f"{server.url}/generate", "--payload", payload, "-o", out, "--json")
    assert ran.status == 0
    assert out.read_bytes().endswith(DONE)
    assert ran.json["tokens"] == 0


@pytest.mark.parametrize("text", ["nonsense", "[1]", ""])
def test_a_payload_that_is_none_is_bad_usage(text: str, run: Run) -> None:
    ran = run("record", "http://127.0.0.1:9/generate", "--payload", "-", input=text)
    assert ran.status == 2
    assert "--payload" in ran.err


def test_a_header_that_is_none_is_bad_usage(run: Run) -> None:
    assert run("record", "http://127.0.0.1:9/", "--payload", "-", "-H", "nonsense", input="{}").status == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/generate", "http://127.0.0.1:1"])
def test_a_url_that_leads_nowhere_is_one_line(url: str, run: Run) -> None:
    ran = run("record", url, "--payload", "-", "--json", input="{}")
    assert ran.status == 1
    assert ran.err.splitlines()[-1].startswith("ssefold: ")


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C cannot be sent to one process there")
def test_interrupted_what_came_is_valid_and_the_server_is_told(payload: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    with FakeSGLang(GreedyModel()) as server:
        server.hold(after=7)
        arguments = ["record", f"{server.url}/generate", "--payload", str(payload), "-o", str(out)]
        recorder = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
        server.wait_until(lambda counters: counters.tokens >= 7)
        while not any(part.stat().st_size for part in tmp_path.glob("out.sse.[0-9]*.part")):
            assert recorder.poll() is None
            os.sched_yield()
        recorder.send_signal(signal.SIGINT)
        _, said = recorder.communicate(timeout=60)
        assert recorder.returncode == 1
        assert "what was recorded is valid, the server was asked to stop" in said
        server.wait_until(lambda counters: counters.abort_requests == 1 and counters.running == 0)
    assert sidecar(out)[-1] == {"end": "interrupted"}
    ran = run("inspect", "--json", out)
    assert ran.status == 1
    assert sum(output["tokens"] for output in ran.json["outputs"]) <= 7
    assert "Traceback" not in said


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("fault", [NO_FAULT, Fault(error={"message": "boom"}, error_after=4), Fault(cut_at=900)])
def test_through_a_transport_the_same_comes_out(
    transport: str, fault: Fault, server: FakeSGLang, payload: Path, run: Run, tmp_path: Path
) -> None:
    for package in {"aiohttp": ["aiohttp"], "anyio": ["anyio", "h11"]}.get(transport, ["httpx"]):
        pytest.importorskip(package, reason=f"{package} is an extra")
    server.fault_next(fault)
    out = tmp_path / "out.sse"
    run("record", f"{server.url}/generate", "--payload", payload, "-o", out)
    ran = run("replay", out, "--through", transport, "--json")
    assert ran.status == (0 if fault is NO_FAULT else 1)
    assert ran.json["through"]["differences"] == []
    assert "the same as from the bytes" in run("replay", out, "--through", transport, "--timing").out


@pytest.mark.parametrize("name", ["cum_si1__batch2.sse", "inc_si1__n2_abort_one_prefix.sse", "inc_ids__unicode.sse"])
def test_captures_go_through_too(name: str, run: Run, data: Path) -> None:
    ran = run("replay", data / "captures" / name, "--through", "httpx", "--json")
    assert ran.json["through"]["differences"] == []
    assert ran.status == 0


def test_a_difference_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ssefold.adapters.cli.playback import server as cli_playback
    from ssefold.adapters.cli.playback import through as cli_through

    body = event(chunk(1, finish=STOP)) + DONE
    other = event(chunk(2, finish=STOP)) + DONE
    original = cli_playback.PlaybackServer
    monkeypatch.setattr(cli_through, "PlaybackServer", lambda _, *rest, **more: original(other, *rest, **more))
    ran = run("replay", "-", "--through", "httpx", input=body)
    assert ran.status == 1
    assert "output 0: token ids differ" in ran.out


def test_timing_needs_times_and_a_transport(run: Run, data: Path) -> None:
    path = data / "streams" / "01_cumulative_single.sse"
    assert run("replay", path, "--timing").status == 2
    assert run("replay", path, "--timing", "--through", "httpx").status == 2
    assert run("replay", data / "captures" / "inc_si1__nonstream.sse", "--through", "httpx").status == 2


class Serving:
    """``ssefold serve-fake`` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "serve-fake", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __exit__(self, *exc_info: object) -> None:
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        assert said == ""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C cannot be sent to one process there")
def test_a_fake_server_until_ctrl_c(run: Run, payload: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sse"
    with Serving("--profile", "0.5.10-incremental", "--interval", "3") as url:
        assert run("record", url, "--payload", payload, "-o", out).status == 0
    inspected = run("inspect", "--json", out).json
    assert inspected["server"]["words"] == "SGLang 0.5.10 with --incremental-streaming-output"
    with Serving("--recording", str(out), "--timing") as url:
        again = tmp_path / "again.sse"
        assert run("record", url, "--payload", payload, "-o", again).status == 0
    assert again.read_bytes() == out.read_bytes()
    assert run("diff", out, again).status == 0


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C cannot be sent to one process there")
def test_a_fake_server_on_the_port_that_was_asked_for(run: Run, payload: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Serving("--port", str(port)) as url:
        assert url == f"http://127.0.0.1:{port}/generate"
        assert run("record", url, "--payload", payload, "-o", tmp_path / "out.sse").status == 0
        taken = run("serve-fake", "--port", port)
        assert taken.status == 2
        assert taken.err.startswith("ssefold: serve-fake failed: ")


def test_profiles_are_listed_and_others_refused(run: Run) -> None:
    assert run("serve-fake", "--list").out.splitlines() == list(PROFILES)
    assert run("serve-fake", "--list", "--json").json == list(PROFILES)
    assert run("serve-fake", "--profile", "9.9").status == 2


def test_no_thread_is_left(run: Run, data: Path) -> None:
    before = threading.active_count()
    run("replay", data / "streams" / "01_cumulative_single.sse", "--through", "httpx")
    assert threading.active_count() == before
