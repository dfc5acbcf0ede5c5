"""Recordings, from a file's bytes to a folded reading with tokens and times."""

from __future__ import annotations

from .events import Event, events_of
from .files import SOURCE, BadRecordingError, Recording
from .fold import MODES, Folding, Reading, fold_recording
from .options import fold_options
from .times import SUFFIX, VERSION, Reads, Timeline, percentile, read_sidecar, sidecar_lines, sidecar_of, timeline_of
from .tokens import Token, tokens_of

__all__ = [
    "MODES",
    "SOURCE",
    "SUFFIX",
    "VERSION",
    "BadRecordingError",
    "Event",
    "Folding",
    "Reading",
    "Reads",
    "Recording",
    "Timeline",
    "Token",
    "events_of",
    "fold_options",
    "fold_recording",
    "percentile",
    "read_sidecar",
    "sidecar_lines",
    "sidecar_of",
    "timeline_of",
    "tokens_of",
]
