"""Recordings, from a file's bytes to a folded reading with tokens and times."""

from __future__ import annotations

from .events import events_of
from .files import SOURCE, BadRecordingError, Recording, read_recording, read_whole_recording
from .fold import MODES, Mode, Reading, fold_recording
from .times import SUFFIX, VERSION, Reads, Timeline, percentile, read_sidecar, sidecar_of, timeline_of, write_sidecar
from .tokens import Token, tokens_of

__all__ = [
    "MODES",
    "SOURCE",
    "SUFFIX",
    "VERSION",
    "BadRecordingError",
    "Mode",
    "Reading",
    "Reads",
    "Recording",
    "Timeline",
    "Token",
    "events_of",
    "fold_recording",
    "percentile",
    "read_recording",
    "read_sidecar",
    "read_whole_recording",
    "sidecar_of",
    "timeline_of",
    "tokens_of",
    "write_sidecar",
]
