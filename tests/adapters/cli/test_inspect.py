"""``ssefold inspect``: server, tokens, times and pictures of a recording."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.reading import SUFFIX, Recording, fold_recording
from ssefold.adapters.cli.report import guess_profile
from ssefold.transports.testing import PROFILES, Asked, GreedyModel, Profile, encode

from .conftest import DONE, STOP, Run, chunk, event


def answer(profile: Profile, *, logprobs: bool = True, tokens: int = 12, interval: int = 1) -> bytes:
    asked = Asked(
        rid="r", prompt_ids=(5, 6, 7), max_new_tokens=tokens, return_logprob=logprobs, return_routed_experts=True,
        return_top_p=profile.slime and logprobs, interval=interval,
    )  # fmt: skip
    return encode([GreedyModel()(asked)], profile).data


@pytest.mark.parametrize("logprobs", [True, False])
@pytest.mark.parametrize("profile", PROFILES.values(), ids=str)
def test_the_guess_never_leaves_the_truth_out(profile: Profile, logprobs: bool) -> None:
    guess = guess_profile(fold_recording(Recording("x", answer(profile, logprobs=logprobs))))
    assert guess is not None
    if profile.family == "sglang":
        assert guess.oldest is not None
        assert guess.newest is not None
        assert guess.oldest <= profile.version <= guess.newest
        assert guess.incremental in (profile.incremental, None)
        assert guess.tokens_only == profile.tokens_only
        assert guess.server.startswith("slime") == (profile.slime and logprobs)
    elif profile.family in ("grpc", "grpc_pd"):
        assert "gateway" in guess.words()
    elif profile.family == "rust":
        assert "Rust" in guess.words()


def test_who_wrote_it_is_not_guessed_from_an_abort_in_the_queue(run: Run, data: Path) -> None:
    assert run("inspect", "--json", data / "streams" / "16_abort_before_first_token.sse").json["server"] is None


def test_for_people(run: Run, data: Path) -> None:
    ran = run("inspect", data / "streams" / "20_slime_replay_cumulative.sse")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "written by slime's image of SGLang 0.5.12 to 0.5.18 without streaming flags" in lines
    assert "times unknown: `ssefold record` keeps them" in lines
    assert "text Hello world" in lines
    assert "top-p 5 rows: 1 to 3 ids kept, 1.8 on average" in lines
    assert any(line.startswith('surprises #2 " wor" -1.4997, #3 id 104') for line in lines)
    assert any(line.startswith("experts 44 numbers = 11 rows x 4; ") for line in lines)


def test_every_token_with_its_event(run: Run, data: Path) -> None:
    ran = run("inspect", "--tokens", data / "streams" / "20_slime_replay_cumulative.sse")
    rows = [line.split() for line in ran.out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[1] for row in rows] == ["101", "102", "103", "104", "2"]
    assert [row[3] for row in rows] == ["0", "1", "2", "3", "3"]
    assert rows[0][5] == '"Hel"'


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("name", ["0.4.6", "0.5.3", "0.5.23", "0.5.23-incremental", "0.5.15.post1-incremental-slime"])
def test_tokens_are_the_outputs_own_and_their_texts_add_up(name: str, interval: int, run: Run) -> None:
    body = answer(PROFILES[name], tokens=40, interval=interval)
    [output] = run("inspect", "--json", "--tokens", "-", input=body).json["outputs"]
    tokens = output["token_list"]
    assert [token["token_id"] for token in tokens] == output["token_ids"]
    assert [token["logprob"] for token in tokens] == output["logprobs"]
    assert "".join(token["text"] for token in tokens) == output["text"]


def test_texts_of_the_rows_themselves_are_preferred(run: Run, data: Path) -> None:
    [output] = run("inspect", "--json", "--tokens", data / "captures" / "cum_si8__logprob_text.sse").json["outputs"]
    assert all(token["text"] for token in output["token_list"])


def with_times(path: Path, body: bytes, reads: list[tuple[float, int]], end: str | None = "complete") -> Path:
    path.write_bytes(body)
    lines: list[object] = [{"ssefold": "reads", "version": 1, "status": 200}, *map(list, reads)]
    if end:
        lines.append({"end": end})
    path.with_name(path.name + SUFFIX).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_times_come_from_the_reads(run: Run, tmp_path: Path) -> None:
    one, two = event(chunk(1)), event(chunk(2, 3, total=3, finish=STOP))
    # The second event is whole with the third read.
    reads = [(0.5, len(one)), (0.6, 10), (0.75, len(two) - 10), (0.8, len(DONE))]
    path = with_times(tmp_path / "a.sse", one + two + DONE, reads)
    timeline = run("inspect", "--json", path).json["timeline"]
    assert timeline == {"ttft": 0.5, "gaps": [0.25], "arrivals": [0.5, 0.75, 0.8], "elapsed": 0.8}
    said = run("inspect", path).out
    assert "first token after 500.0 ms; between tokens p50 250.0 ms" in said
    assert "4 reads in 0.80 s" in said


def test_a_terminal_chunk_that_replaces_all_is_no_gap(run: Run, tmp_path: Path) -> None:
    body = answer(PROFILES["0.5.15.post1-incremental-slime"], tokens=5)
    path = with_times(tmp_path / "a.sse", body, [(0.1, len(body))])
    assert len(run("inspect", "--json", path).json["timeline"]["gaps"]) == 4


@pytest.mark.parametrize(
    ("sidecar", "fits"),
    [
        ("", False),
        ("[0.1, 5]\n", False),
        ('{"ssefold": "reads", "version": 2}\n[0.1, {size}]\n', False),
        ('{"ssefold": "reads", "version": 1}\n[0.1, {size}]\n{"end": "complete"}\n', True),
        ('{"ssefold": "reads", "version": 1}\n[0.1, {size}]\n[0.2', True),
        ('{"ssefold": "reads", "version": 1}\n[0.1, 5]\n{"end": "complete"}\n', False),
        ('{"ssefold": "reads", "version": 1}\n[0.1, 5]\n{"end": "interrupted"}\n', True),
        ('{"ssefold": "reads", "version": 1}\n["x", null]\n', False),
        ('{"ssefold": "reads", "version": 1}\n[0.1, -5]\n', False),
    ],
)
def test_a_sidecar_is_believed_only_if_it_fits(sidecar: str, fits: bool, run: Run, tmp_path: Path) -> None:
    body = event(chunk(1, finish=STOP)) + DONE
    path = tmp_path / "a.sse"
    path.write_bytes(body)
    path.with_name("a.sse" + SUFFIX).write_text(sidecar.replace("{size}", str(len(body))))
    ran = run("inspect", "--json", path)
    assert ran.status == 0
    assert (ran.json["timeline"] is not None) == fits


class Elements(HTMLParser):
    """Counts elements, and sees whether they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


EVIL = "<script>document.title='owned'</script>\x1b[2J <img src=x onerror=alert(1)> & \"quotes\" [bold] \u202e"


def evil_report(run: Run, tmp_path: Path) -> Path:
    body = event(chunk(1, 2, text=EVIL, total=2, finish={"type": "stop", "matched": EVIL})) + DONE
    path = with_times(tmp_path / "<b>evil.sse", body, [(0.1, 9), (0.2, len(body) - 9)])
    report = tmp_path / "report.html"
    assert run("inspect", path, "--html", report).status == 0
    return report


def test_the_report_is_whole_and_asks_for_nothing(run: Run, tmp_path: Path) -> None:
    body = answer(PROFILES["0.5.15.post1-incremental-slime"], tokens=60)
    path = with_times(tmp_path / "a.sse", body, [(0.1, 1000), (0.2, len(body) - 1000)])
    report = tmp_path / "report.html"
    ran = run("inspect", path, "--html", report, "--layers", "2")
    assert ran.err == f"wrote {report}\n"
    page = report.read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    assert elements.seen["svg"] == 8
    for title in ("Bytes per event", "Milliseconds between", "Logprob per token", "Load of routed experts"):
        assert title in page
    assert re.findall(r"layer (\d+), expert 0:", page) == ["0", "1"] * 2
    run("inspect", path, "--html", report)
    page = report.read_text(encoding="utf-8")
    assert "all layers together (--layers tells them apart)" in page
    assert re.findall(r"([a-z]+ layers?), expert 0:", page) == ["all layers"] * 2
    refused = run("inspect", path, "--html", report, "--layers", "5")
    assert refused.status == 2
    assert "5 layers do not divide the" in refused.err
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page)
    assert "default-src 'none'" in page


def test_layers_are_never_ignored_silently(run: Run, tmp_path: Path) -> None:
    path, report = tmp_path / "a.sse", tmp_path / "report.html"
    path.write_bytes(event(chunk(1, finish=STOP)) + DONE)
    ran = run("inspect", path, "--layers", "2")
    assert (ran.status, ran.out) == (2, "")
    assert "--layers is for the report: give --html as well" in ran.err
    ran = run("inspect", path, "--html", report, "--layers", "2")
    assert ran.status == 0
    assert ran.err == f"ssefold: --layers has no effect: no output has routed experts\nwrote {report}\n"


def test_the_verdict_is_at_the_top_and_the_path_is_not(run: Run, tmp_path: Path) -> None:
    path, report = tmp_path / "a.sse", tmp_path / "report.html"
    path.write_bytes(event(chunk(1, finish=STOP)) + DONE)
    run("inspect", path, "--html", report)
    page = report.read_text(encoding="utf-8")
    assert '<h1>a.sse</h1><p class="verdict good">Good: 1 output, 1 token, nothing remarkable.</p>' in page
    assert "<p>Nothing remarkable.</p>" in page
    assert str(tmp_path) not in page
    path.write_bytes(event(chunk(1)))
    run("inspect", path, "--html", report)
    page = report.read_text(encoding="utf-8")
    assert '<p class="verdict bad">Bad: the body ended without' in page
    assert "(SG201)" in page
    path.write_bytes(event(chunk(1, finish={"type": "abort", "message": "no", "status_code": 400})) + DONE)
    run("inspect", path, "--html", report)
    assert '<p class="verdict bad">Bad: SG208, the server refused the request: ' in report.read_text(encoding="utf-8")


def test_the_legend_has_the_bounds_and_charts_have_a_phones_size(run: Run, tmp_path: Path) -> None:
    body = answer(PROFILES["0.5.15.post1-incremental-slime"], tokens=600)
    report = tmp_path / "report.html"
    run("inspect", "-", "--html", report, "--layers", "2", input=body)
    page = report.read_text(encoding="utf-8")
    for bound in ("above -0.25", "to -1.5", "to -4.0", "lower"):
        assert bound in page
    for name, width in (("wide", "900"), ("narrow", "350")):
        assert set(re.findall(rf'<div class="{name}"><svg [^>]* width="(\d+)"', page)) == {width}
    assert "max-width: 100%" not in page  # nothing shrinks them
    assert re.findall(r">(layer \d)</text>", page) == ["layer 0", "layer 1"] * 2
    assert "times chosen</text>" in page


def test_text_of_a_model_stays_text_in_the_report(run: Run, tmp_path: Path) -> None:
    elements = Elements()
    elements.feed(evil_report(run, tmp_path).read_text(encoding="utf-8"))
    assert elements.open == []
    assert "script" not in elements.seen
    assert "img" not in elements.seen
    assert "<script>document.title='owned'</script>\\x1b[2J" in "".join(elements.text)


@pytest.mark.slow
def test_a_browser_shows_the_report(run: Run, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium is installed")
    report = evil_report(run, tmp_path)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    common = [
        browser,
        *flags,
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    seen = subprocess.run([*common, "--dump-dom", report.as_uri()], capture_output=True, text=True, timeout=120)
    assert "<title>ssefold: " in seen.stdout
    assert "owned</title>" not in seen.stdout
    assert seen.stdout.count("<svg") == 2
    picture = tmp_path / "report.png"
    subprocess.run([*common, f"--screenshot={picture}", report.as_uri()], capture_output=True, timeout=120, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_outputs_beyond_many_are_counted_not_drawn(run: Run, tmp_path: Path) -> None:
    body = b"".join(event({**chunk(1, finish=STOP), "index": index}) for index in range(20)) + DONE
    report = tmp_path / "report.html"
    run("inspect", "-", "--html", report, input=body)
    page = report.read_text(encoding="utf-8")
    assert page.count("<h2>Output ") == 16
    assert "4 more outputs not shown" in page


def test_a_bad_stream_is_inspected_as_far_as_it_goes(run: Run, tmp_path: Path, data: Path) -> None:
    report = tmp_path / "report.html"
    ran = run("inspect", data / "streams" / "10_batch_error_event_kills_siblings.sse", "--html", report)
    assert ran.status == 1
    assert ran.err.count("\n") == 2
    assert (ran.out + ran.err).count("Input is too long.") == 1
    assert "Input is too long." in report.read_text(encoding="utf-8")
    assert "SG204" in ran.out
