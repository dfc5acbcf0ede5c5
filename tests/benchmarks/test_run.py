"""The whole benchmark is run once, on next to nothing, so that it cannot rot.  No time is asserted."""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import command, main
from tests.benchmarks.memory import use_of
from tests.benchmarks.report import Section, at_least, at_most, milliseconds, table
from tests.benchmarks.scale import FULL, QUICK, TINY
from tests.benchmarks.timing import fold_time, race


@pytest.fixture(autouse=True)
def _light_collections() -> Iterator[None]:
    """The code collects garbage before it times; what the other tests left need not be walked each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Section], str]:
    docs = tmp_path_factory.mktemp("docs")
    (docs / "performance.md").write_text("before\n<!-- bench -->\nYESTERDAY\n<!-- /bench -->\nafter\n", "utf-8")
    sections = main(TINY, docs)
    before, table, after = re.split("<!-- /?bench -->", (docs / "performance.md").read_text("utf-8"))
    assert (before, after) == ("before\n", "\nafter\n")
    assert "YESTERDAY" not in table
    assert table.count("\n|") == 2 + 4
    return sections, (docs / "benchmarks.md").read_text("utf-8")


def test_the_page_has_every_section_bar_and_row(tiny: tuple[list[Section], str]) -> None:
    sections, page = tiny
    assert all(f"\n## {section.title}\n" in page for section in sections)
    rows = sum(len(section.rows) for section in sections)
    bars = sum(len(section.bars) for section in sections)
    assert rows > 30
    assert bars >= 8
    tables = page.count("\n|-") + page.count("\n|:")
    assert len(re.findall(r"^\|", page, re.MULTILINE)) >= rows + bars + 2 * tables


def test_every_row_has_a_cell_a_column(tiny: tuple[list[Section], str]) -> None:
    for section in tiny[0]:
        assert {len(row) for row in section.rows} == {len(section.header)}, section.title
        assert all(cell for row in section.rows for cell in row), section.title


def test_the_page_in_docs_is_one_that_this_code_writes(repository: Path, tiny: tuple[list[Section], str]) -> None:
    """The page is written by hand-started runs: renamed or new sections must not go missing in it."""
    page = (repository / "docs" / "benchmarks.md").read_text("utf-8")
    assert re.findall(r"^## (.*)", page, re.MULTILINE) == re.findall(r"^## (.*)", tiny[1], re.MULTILINE)


def test_scales_differ_in_everything_that_takes_time() -> None:
    for scale in (FULL, QUICK, TINY):
        assert min(scale.rounds, scale.few_rounds) >= 1
    assert {
        field.name for field in dataclasses.fields(FULL) if getattr(FULL, field.name) == getattr(TINY, field.name)
    } == {"barred_only"}


def test_a_single_part_prints_its_tables_and_writes_no_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.benchmarks.__main__.QUICK", dataclasses.replace(TINY, barred_only=True))
    command(["fold", "--quick"])
    printed = capsys.readouterr().out
    assert "Folding a stream" in printed
    assert printed.count(" at least ") == 6
    with pytest.raises(SystemExit):
        command(["folds"])


@pytest.mark.parametrize(("value", "least", "most"), [(1.9, False, True), (2.0, True, True), (2.1, True, False)])
def test_a_bar_is_reached_at_the_bar(value: float, least: bool, most: bool) -> None:
    assert at_least("", 2, value).reached is least
    assert at_most("", 2, value).reached is most


def test_a_table_is_markdown_with_figures_flush_right() -> None:
    assert table(["a", "n"], [["one", "1"], ["two", "10"]]) == (
        "| a   |  n |\n|-----|---:|\n| one |  1 |\n| two | 10 |\n"
    )


@pytest.mark.parametrize(("seconds", "shown"), [(1.2345, "1,234"), (0.01234, "12.3"), (0.00001234, "0.0123")])
def test_milliseconds_have_three_figures(seconds: float, shown: str) -> None:
    assert milliseconds(seconds) == shown


class Keeper:
    """Keeps the reads if it is told to."""

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self.reads: list[bytes] = []

    def feed(self, data: bytes, /) -> None:
        if self.keeps:
            self.reads.append(data)

    def close(self) -> None:
        self.reads = self.reads[-1:]


def test_reads_that_are_kept_are_seen() -> None:
    body = [b"x" * 5000, b"y" * 5000, b"z" * 5000]
    kept, dropped = use_of(Keeper, body, 1000), use_of(lambda: Keeper(keeps=False), body, 1000)
    assert kept.before_end >= 10_000
    assert kept.peak >= 15_000
    assert kept.after_end < 5000
    assert dropped.before_end < 2000
    assert 1000 <= dropped.peak < 8000


def test_all_reads_are_fed_in_order_and_then_the_end() -> None:
    heard: list[bytes] = []

    class Listener:
        def feed(self, data: bytes, /) -> None:
            heard.append(data)

        def close(self) -> None:
            heard.append(b".")

    assert fold_time([[b"1", b"2"], [b"3"]], Listener()) >= 0
    assert heard == [b"1", b"2", b"3", b"."]


def test_contenders_take_turns() -> None:
    called: list[str] = []
    runs = race({name: partial(called.append, name) for name in "abc"}, 3)
    assert "".join(called) == "abcbcacab"
    assert {name: len(seconds) for name, seconds in runs.items()} == dict.fromkeys("abc", 3)
