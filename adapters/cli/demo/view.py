"""How the demo looks: a live table on a terminal, plain lines anywhere else, nothing for machines.

Knows samples and updates; what happens is ``demo.py``'s matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..terminal import number, plural, quoted, surprise, token_text
from .rounds import CUT_AFTER, PROMPT, ROUNDS, TOKENS, server_name

if TYPE_CHECKING:
    from ssefold import Update

    from ...rollout import RolloutSample
    from .rounds import Comparison, Round

#: With all else the panel has 23 lines then: it fits a terminal of 80 x 24.
_ROWS = 5
_SECONDS_PER_TOKEN = 0.03


class Row(NamedTuple):
    """One token in the table."""

    position: int
    token_id: int
    logprob: float | None
    text: str


class SilentView:
    """Nobody watches."""

    pace: float = 0.0

    def begins(self, round_: Round, number: int, sample: RolloutSample) -> None:
        """See :class:`.demo.View`."""

    def updated(self, sample: RolloutSample, update: Update) -> None:
        """See :class:`.demo.View`."""

    def was_cut(self, sample: RolloutSample, size: int) -> None:
        """See :class:`.demo.View`."""

    def resumes(self, sample: RolloutSample, payload: dict[str, Any]) -> None:
        """See :class:`.demo.View`."""

    def compared(self, comparisons: Sequence[Comparison]) -> None:
        """See :class:`.demo.View`."""


class PlainView(SilentView):
    """Lines, one a token: for pipes, logs and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows = NewRows()
        self._then = ""

    def begins(self, round_: Round, number: int, sample: RolloutSample) -> None:
        """See :class:`.demo.View`."""
        self._rows = NewRows()
        self._then = round_.then
        self._say(f"\nrollout {number} of {len(ROUNDS)}, {round_.title}")
        self._say(f"  streamed from {server_name(round_.first)}")
        self._say(f"  {'#':>4} {'token id':>8}  {'logprob':>8}  text")

    def updated(self, sample: RolloutSample, update: Update) -> None:
        """See :class:`.demo.View`."""
        for position, token, logprob, text in self._rows.after_update(sample):
            self._say(f"  {position:>4} {token:>8}  {number(logprob):>8}  {quoted(text) if text else ''}".rstrip())

    def was_cut(self, sample: RolloutSample, size: int) -> None:
        """See :class:`.demo.View`."""
        for line in partial_lines(sample, size):
            self._say(f"  {line}")
        self._say(f"  text so far: {quoted(sample.text)}")

    def resumes(self, sample: RolloutSample, payload: dict[str, Any]) -> None:
        """See :class:`.demo.View`."""
        self._say(f"  {resume_line(sample, payload, self._then)}")

    def compared(self, comparisons: Sequence[Comparison]) -> None:
        """See :class:`.demo.View`."""
        self._say("  compared with an uninterrupted run:")
        for line in comparison_lines(comparisons):
            self._say(f"    {line.plain[2:]}")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class LiveView:
    """One panel a round, redrawn as tokens come."""

    pace: float = _SECONDS_PER_TOKEN

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=30)
        self._new = NewRows()
        self._rows: deque[Row | None] = deque(maxlen=_ROWS)
        self._text = Text()
        self._round = ROUNDS[0]
        self._number = 0
        self._server = ""
        self._tokens = 0
        self._below: list[RenderableType] = []

    def begins(self, round_: Round, number: int, sample: RolloutSample) -> None:
        """See :class:`.demo.View`."""
        self._round, self._number = round_, number
        self._server = round_.first
        self._new = NewRows()
        self._rows.clear()
        self._text = Text()
        self._tokens = 0
        self._below = []
        self._live = Live(self._panel(), console=self._console, refresh_per_second=30)
        self._live.start()

    def updated(self, sample: RolloutSample, update: Update) -> None:
        """See :class:`.demo.View`."""
        for row in self._new.after_update(sample):
            self._rows.append(row)
            self._text.append(quoted(row.text)[1:-1], style=surprise(row.logprob))
        self._tokens = len(sample.token_ids)
        self._live.update(self._panel())

    def was_cut(self, sample: RolloutSample, size: int) -> None:
        """See :class:`.demo.View`."""
        self._rows.append(None)
        self._text.append(" ✂ ", style="bold red reverse")
        self._below += [Text(line, style="dim" if at else "red") for at, line in enumerate(partial_lines(sample, size))]

    def resumes(self, sample: RolloutSample, payload: dict[str, Any]) -> None:
        """See :class:`.demo.View`."""
        self._server = self._round.then
        self._below.append(Text(resume_line(sample, payload, self._round.then), style="cyan"))

    def compared(self, comparisons: Sequence[Comparison]) -> None:
        """See :class:`.demo.View`."""
        self._below.append(Text("compared with an uninterrupted run:"))
        self._below += [Text("  ").append_text(line) for line in comparison_lines(comparisons)]
        self._live.update(self._panel(), refresh=True)
        self._live.stop()

    def close(self) -> None:
        """Give the terminal back, whatever has happened."""
        self._live.stop()

    def _panel(self) -> Panel:
        progress = Table.grid(padding=(0, 1), expand=True)
        progress.add_column(no_wrap=True)
        progress.add_column(ratio=1)
        progress.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=TOKENS, completed=self._tokens, complete_style="green", finished_style="green")
        progress.add_row(Text(server_name(self._server), style="bold"), bar, Text(f"{self._tokens}/{TOKENS} tokens"))
        parts: list[RenderableType] = [progress, self._table(), self._text, *self._below]
        title = f"[bold]rollout {self._number} of {len(ROUNDS)}[/]: {self._round.title}"
        return Panel(Group(*parts), title=title, title_align="left", box=ROUNDED, border_style="blue")

    def _table(self) -> Table:
        table = Table(box=None, expand=True, header_style="dim", padding=(0, 1))
        table.add_column("#", justify="right", width=4)
        table.add_column("token id", justify="right", width=8)
        table.add_column("logprob", justify="right", width=8)
        table.add_column("", width=12)
        table.add_column("text", ratio=1, no_wrap=True)
        for row in self._rows:
            if row is None:
                table.add_row("✂", "", "", "", "cut here", style="bold red")
            else:
                logprob, text = row.logprob, token_text(row.text, row.logprob)
                table.add_row(str(row.position), str(row.token_id), number(logprob), _bar(logprob), text)
        for _ in range(_ROWS - len(self._rows)):
            table.add_row()  # the panel keeps its height
        return table


class NewRows:
    """Rows of a table that grows with a sample; what an update only repeats (``replace``) is not shown twice."""

    def __init__(self) -> None:
        self._tokens = 0
        self._text = 0

    def after_update(self, sample: RolloutSample) -> list[Row]:
        """Position, id, logprob and text of each new token; new text stands with the last of them."""
        text = sample.text[self._text :]
        first, end = self._tokens, len(sample.token_ids)
        self._tokens, self._text = end, self._text + len(text)
        return [
            Row(at, sample.token_ids[at], sample.logprobs[at], text if at == end - 1 else "")
            for at in range(first, end)
        ]


def partial_lines(sample: RolloutSample, size: int) -> list[str]:
    """What is there after the cut."""
    finish = sample.finish_reason
    how = "connection closed, no finish_reason" if finish is None else f"finish_reason {finish.type!r}"
    counts = f"{plural(len(sample.token_ids), 'token')}, {plural(len(sample.logprobs), 'logprob')}, {size:,} bytes"
    lines = [f"cut: {how}; the partial sample ({sample.status}): {counts}"]
    if sample.top_p is not None and sample.routed_experts is not None:
        lines.append(
            f"replay so far: {plural(len(sample.top_p), 'top-p row')}, "
            f"routed experts {tuple(sample.routed_experts.shape)}"
        )
    return lines


def resume_line(sample: RolloutSample, payload: dict[str, Any], then: str) -> str:
    """What is asked for next, and of whom."""
    given = len(payload["input_ids"]) - len(PROMPT)
    left = payload["sampling_params"]["max_new_tokens"]
    return f"resumed on {server_name(then)}: prompt {len(PROMPT)} + {plural(given, 'token')}, {left} to go"


def comparison_lines(comparisons: Sequence[Comparison]) -> list[Text]:
    """One line for each comparison."""
    width = max(len(one.what) for one in comparisons)
    lines: list[Text] = []
    for one in comparisons:
        line = Text("✔ " if one.holds else "✘ ", style="green" if one.holds else "bold red")
        line.append(f"{one.what:<{width}}  {one.equal} of {one.total} equal", style="default")
        if one.difference:
            line.append(f"; first difference {one.difference}", style="red")
        lines.append(line)
    return lines


def opening() -> str:
    """What the demo is about, in a sentence."""
    return (
        f"A rollout of {TOKENS} tokens is streamed, cut after {CUT_AFTER}, resumed on another server, and compared "
        "with one that was never cut."
    )


def _bar(logprob: float | None) -> Text:
    if logprob is None:
        return Text()
    filled = max(1, round(12 * 2.718281828 ** max(logprob, -12)))
    return Text("━" * filled, style=surprise(logprob))
