"""What is kept about each ``/generate`` call of a sample: where it went, which tokens it gave, under which weights.

Source of the weight spans: SGLang ``utils/weight_versions.py::compute_weight_version_spans`` (0.5.19 and later, in the
terminal chunk); before that only ``meta_info.weight_version``, the server's version when a chunk was written.  Knows
positions and nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ssefold import ProtocolError, Update

_FIELD = "meta_info.weight_versions"


class Call(NamedTuple):
    """One call: response tokens ``[start, end)`` came from it.

    :ivar rid: the request id that was sent, or seen; None if neither.
    :ivar source: the server, as the caller named it, a URL without user, password and query; None if not given.
    :ivar finish: ``finish_reason.type``, or None for a call that was cut, or still runs.
    """

    rid: str | None
    source: str | None
    start: int
    end: int
    finish: str | None


class WeightSpan(NamedTuple):
    """Response tokens ``[start, end)`` were sampled from these weights."""

    version: str
    start: int
    end: int


def spans_after(spans: list[WeightSpan], update: Update, base: int, end: int) -> list[WeightSpan]:
    """Spans of the running call after ``update``, which makes its tokens ``[base, end)``.

    :param spans: spans of this call so far.
    :raises ProtocolError: ``weight_versions`` are no spans of these tokens.
    """
    meta = update.meta_info
    if update.finish_reason is not None and meta.get("weight_versions") is not None:
        return _told(meta["weight_versions"], base, end, cut=update.finish_reason.type == "abort")
    kept = [WeightSpan(version, start, min(stop, end)) for version, start, stop in spans if start < end]
    version = meta.get("weight_version")
    covered = kept[-1].end if kept else base + (0 if update.replace else update.start)
    if version is None or covered >= end:
        return kept
    if type(version) is not str:
        raise ProtocolError(f"meta_info.weight_version must be a string or null, found {type(version).__name__}")
    start = max(covered, end - len(update.token_ids))
    return merged([*kept, WeightSpan(version, start, end)])


def merged(spans: list[WeightSpan]) -> list[WeightSpan]:
    """The same spans, neighbours of one version joined."""
    joined: list[WeightSpan] = []
    for span in spans:
        if joined and joined[-1].version == span.version and joined[-1].end == span.start:
            joined[-1] = WeightSpan(span.version, joined[-1].start, span.end)
        elif span.start < span.end:
            joined.append(span)
    return joined


def _told(value: Any, base: int, end: int, *, cut: bool) -> list[WeightSpan]:
    """The server's own spans; after an abort they may count tokens that never arrived."""
    spans: list[WeightSpan] = []
    at, count = 0, end - base
    entries: Sequence[Any] = value if isinstance(value, Sequence) else [value]
    for entry in entries:
        fields = [entry.get(key) for key in ("version", "start", "end")] if isinstance(entry, Mapping) else []
        match fields:
            case [str(version), int(start), int(stop)] if start == at and stop >= start:
                spans.append(WeightSpan(version, base + min(start, count), base + min(stop, count)))
                at = stop
            case _:
                raise ProtocolError(
                    f"{_FIELD} must be spans of version, start and end that follow one another from 0, found"
                    f" {entry!r:.80} where one from {at} on was due"
                )
    if at != count and not (cut and at > count):
        raise ProtocolError(
            f"{_FIELD} covers {at} tokens, this call gave {count}: look for a gateway that drops chunks"
        )
    return merged(spans)
