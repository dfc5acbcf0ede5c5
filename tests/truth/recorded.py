"""The recorded bodies in ``tests/data``: what came over the wire, and what a correct client must hold at the end.

``streams/`` are small bodies of all server versions, ``captures/`` bodies of the real SGLang 0.5.23 over a socket with
a scripted scheduler.  Large captures are kept compressed.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True)
class Recorded:
    """One body and the facts beside it."""

    name: str
    body: bytes
    facts: dict[str, Any]

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The JSON of each event but ``[DONE]``, of a body framed as SGLang frames it."""
        blocks = [block for block in self.body.split(b"\n\n") if block]
        if any(not block.startswith(b"data: ") for block in blocks):
            raise ValueError(f"{self.name} is not framed as SGLang frames its streams")
        return [json.loads(block[6:]) for block in blocks if block != b"data: [DONE]"]


def streams() -> list[Recorded]:
    """``tests/data/streams``, in order."""
    return _load(DATA / "streams")


def captures(*, nonstream: bool = False) -> list[Recorded]:
    """``tests/data/captures``: the event streams, or the plain JSON responses."""
    return [one for one in _load(DATA / "captures") if _is_plain(one) == nonstream]


def _is_plain(one: Recorded) -> bool:
    return "nonstream" in one.name or "bad_type" in one.name


def _load(folder: Path) -> list[Recorded]:
    found: list[Recorded] = []
    for facts in sorted(folder.glob("*.json")):
        plain = facts.with_suffix(".sse")
        packed = facts.with_suffix(".sse.gz")
        body = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
        found.append(Recorded(facts.stem, body, json.loads(facts.read_text("utf-8"))))
    if not found:
        raise FileNotFoundError(f"no recorded bodies in {folder}")
    return found
