"""The report on a few rows and servers, without any peer, and the rule that it compares with, by its description."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ssefold.transports.testing import PROFILES
from tests.conformance import events, streams
from tests.conformance.__main__ import main
from tests.conformance.rule_2272 import Rule2272
from tests.truth.recorded import streams as recorded

RECORDED = {one.name[:2]: one for one in recorded()}


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "conformance.md"
    assert main(page, peers=(), rows=3, profiles=2) == 0
    text = page.read_text("utf-8")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Server-sent events", "SGLang streams"]
    assert all(f"| {row.name} " in text for row in events.rows()[:3])
    assert all(f"| {name} " in text for name in list(PROFILES)[:2])
    assert "3 of 3" in text
    assert "3 of 3" in capsys.readouterr().out


def test_the_page_in_docs_has_every_row_and_server(repository: Path) -> None:
    """It is written by runs that somebody starts: what is new must not go missing in it."""
    text = (repository / "docs" / "conformance.md").read_text("utf-8")
    assert [row.name for row in events.rows() if f" {row.name} ".replace("|", "\\|") not in text] == []
    assert [name for name in PROFILES if f"| {name} " not in text] == []


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "parser_of", lambda peer: None)
    (line,) = events.table_of(events.rows()[:1], ["peer"])
    assert line[2:] == ["yes", "not installed"]


def test_a_peer_is_judged_by_every_cut() -> None:
    row = next(row for row in events.rows() if len(row.stream) < 100 and row.data)
    assert events.theirs(row, lambda reads: row.data) == "yes"
    assert events.theirs(row, lambda reads: []) == "no"
    assert events.theirs(row, lambda reads: 1 / 0) == "no"  # type: ignore[arg-type, return-value]
    cuts = len(list(events.cuts(row.stream)))
    answer = events.theirs(row, lambda reads: row.data if len(reads) == 1 else [])
    assert re.fullmatch(rf"wrong in \d+ of {cuts} cuts", answer)


def test_what_is_not_right_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(events, "ours", lambda row: "no")
    assert main(tmp_path / "page.md", peers=(), rows=1, profiles=0) == 1


@pytest.mark.parametrize(("name", "mode"), [("01", "cumulative"), ("02", "incremental"), ("20", "cumulative")])
def test_the_rule_takes_what_it_was_made_for(name: str, mode: str) -> None:
    rule = Rule2272(mode)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rule.fold([RECORDED[name].body])
    rows = RECORDED[name].payloads[-1]["meta_info"]["output_token_logprobs"]
    assert rule.tokens[-len(rows) :] == [row[1] for row in rows]
    assert len(rule.logprobs) == RECORDED[name].payloads[-1]["meta_info"]["output_token_logprobs_length"]


@pytest.mark.parametrize(
    ("name", "mode", "says"),
    [
        ("01", "incremental", "inconsistent output_token_logprobs_length"),
        ("02", "cumulative", "inconsistent output_token_logprobs_length"),
        ("03", "cumulative", "must include output_token_logprobs_length"),
        ("14", "incremental", "inconsistent output_token_logprobs_length"),
        ("26", "incremental", "inconsistent output_token_logprobs_length"),  # a line is lost at U+2028
        ("41", "cumulative", "without a terminal finish_reason"),
    ],
)
def test_the_rule_refuses_what_its_description_says(name: str, mode: str, says: str) -> None:
    rule = Rule2272(mode)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises((ValueError, RuntimeError), match=says):
        rule.fold([RECORDED[name].body])


def test_each_server_is_told_by_its_name() -> None:
    (row,) = streams.rows(("0.5.23-incremental",))
    assert {made.verdict for made in row.ours.values()} == {"right"}
    assert row.rule_at_lf["glued"].verdict == "refused"
    assert streams.summary(row.rule_at_lf) == "9 of 11; refused: queued, glued"
