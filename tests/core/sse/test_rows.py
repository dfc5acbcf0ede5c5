"""Every recorded row (web-platform-tests, our own edge cases, public bug reports), cut in every way."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .feeding import Seen, every_cut, parse, tiny_thresholds
from .reference import interpret

ROWS = Path(__file__).resolve().parent.parent.parent / "data" / "sse"


@dataclass(frozen=True)
class Row:
    """One recorded stream and what it means."""

    name: str
    stream: bytes
    initial_last_event_id: str
    events: list[tuple[str, str, str]]
    last_event_id: str
    reconnection_time: int | None


def _row(raw: dict[str, Any]) -> Row:
    return Row(
        name=raw["name"],
        stream=base64.b64decode(raw["input_b64"]),
        initial_last_event_id=raw.get("initial_last_event_id", ""),
        events=[(event, data, last_id) for event, data, last_id in raw["events"]],
        last_event_id=raw["last_event_id"],
        reconnection_time=raw["retry_ms"],
    )


def _rows() -> list[Row]:
    return [_row(raw) for path in sorted(ROWS.glob("*.json")) for raw in json.loads(path.read_text("utf-8"))]


rows = pytest.mark.parametrize("row", _rows(), ids=lambda row: row.name)


def _check(row: Row, seen: Seen) -> None:
    assert seen.events == row.events
    assert seen.last_event_id == row.last_event_id
    assert seen.reconnection_time == row.reconnection_time


def test_there_are_rows() -> None:
    assert len(_rows()) >= 70


@rows
def test_row_in_every_cut(row: Row) -> None:
    for pieces in every_cut(row.stream):
        _check(row, parse(pieces, last_event_id=row.initial_last_event_id))


@pytest.mark.parametrize("row", [row for row in _rows() if len(row.stream) < 10_000], ids=lambda row: row.name)
def test_row_with_tiny_thresholds(row: Row) -> None:
    """Long rows meet the real thresholds."""
    with tiny_thresholds():
        for pieces in every_cut(row.stream):
            _check(row, parse(pieces, last_event_id=row.initial_last_event_id))


@rows
def test_row_before_another_event(row: Row) -> None:
    """Bytes after the row, in the same reads, change nothing of what it gave."""
    trailer = b"\n\nevent: trailer\ndata: t\n\n"
    for pieces in every_cut(row.stream + trailer):
        events = parse(pieces, last_event_id=row.initial_last_event_id).events
        assert events[: len(row.events)] == row.events
        assert events[-1][:2] == ("trailer", "t")


@rows
def test_row_with_a_last_event_id_from_before(row: Row) -> None:
    wanted = interpret(row.stream, last_event_id="before")
    for pieces in every_cut(row.stream):
        seen = parse(pieces, last_event_id="before")
        assert (seen.events, seen.last_event_id) == (wanted.events, wanted.last_event_id)


@rows
def test_the_reference_agrees(row: Row) -> None:
    """The transcription that the property tests believe in is itself held against the rows."""
    outcome = interpret(row.stream, row.initial_last_event_id)
    assert outcome.events == row.events
    assert outcome.last_event_id == row.last_event_id
    assert outcome.reconnection_time == row.reconnection_time
