"""What a terminal shows: wrapped lines that hang below their column, and the demo's live panel."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from rich.console import Console
from rich.text import Text

from ssefold.adapters.cli.demo import view as cli_demo_view
from ssefold.adapters.cli.demo.rounds import ROUNDS, TOKENS, play
from ssefold.adapters.cli.demo.view import LiveView
from ssefold.adapters.cli.reading import Recording, fold_recording
from ssefold.adapters.cli.report import report_lines
from ssefold.adapters.cli.terminal import print_lines


def terminal(width: int) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, color_system=None, width=width, height=60, highlight=False), file


@pytest.mark.parametrize("width", [30, 60, 100])
def test_long_lines_hang_below_their_column(width: int, data: Path) -> None:
    console, file = terminal(width)
    reading = fold_recording(Recording(str(data / "captures" / "inc_si1__unicode.sse")))
    print_lines(console, report_lines(reading, text_limit=None))
    lines = file.getvalue().splitlines()
    assert all(Text(line).cell_len <= width for line in lines)
    start = next(at for at, line in enumerate(lines) if line.startswith("  text "))
    end = next(at for at, line in enumerate(lines) if line.startswith("  lanes "))
    assert end > start + 1
    assert all(line[:13] == " " * 13 for line in lines[start + 1 : end])


def test_a_pipe_gets_whole_lines(data: Path) -> None:
    file = io.StringIO()
    reading = fold_recording(Recording(str(data / "captures" / "inc_si1__unicode.sse")))
    print_lines(Console(file=file, width=40, highlight=False), report_lines(reading, text_limit=None))
    assert len(file.getvalue().splitlines()) == 9
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("at", range(len(ROUNDS)), ids=lambda at: ROUNDS[at].cut)
def test_the_live_panel_fits_80_by_24(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_demo_view.LiveView, "pace", 0.0)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=80, height=24, highlight=False)
    view = LiveView(console)
    try:
        asyncio.run(play(ROUNDS[at], at + 1, view))
    finally:
        view.close()
    # Rich crops what is higher than the terminal, but for the last time it is drawn.
    last = file.getvalue()[file.getvalue().rindex("╭") :]
    assert len(last.splitlines()) <= 24
    assert f"{TOKENS} of {TOKENS} equal" in last


@pytest.mark.parametrize("at", range(len(ROUNDS)), ids=lambda at: ROUNDS[at].cut)
def test_the_live_panel_ends_with_the_whole_story(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_demo_view.LiveView, "pace", 0.0)
    console, file = terminal(110)
    view = LiveView(console)
    try:
        sample, _ = asyncio.run(play(ROUNDS[at], at + 1, view))
    finally:
        view.close()
    last = file.getvalue()[file.getvalue().rindex(f"rollout {at + 1} of") :]
    assert f"{TOKENS}/{TOKENS} tokens" in last
    assert "✂" in last
    assert f"{TOKENS} of {TOKENS} equal" in last
    assert str(sample.token_ids[-1]) in last
    assert "cut: " in last
    assert "resumed on SGLang" in last
    assert file.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"
