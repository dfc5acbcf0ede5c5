"""Recorded bodies from files and pipes: bytes in whatever way they were kept.

Knows files; what is in them is :mod:`.fold`'s matter.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from ..terminal import one_line

_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31
#: What one damaged place costs at most, in compressed bytes.
_STEP = 1024

#: A file that must exist, or ``-``.
SOURCE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str)


class BadRecordingError(click.ClickException):
    """A file that is not what it should be: told in one line, exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        click.echo(f"ssefold: {one_line(self.message)}", file=file, err=file is None)


@dataclass(frozen=True)
class Recording:
    """One recorded response body.

    :ivar name: as the user gave it.
    :ivar data: the body, decompressed; of a gzip file that is not whole, what could be had of it.
    :ivar torn: why it is not whole, in one line; empty if it is.
    """

    name: str
    data: bytes
    torn: str = ""

    @property
    def is_native(self) -> bool:
        """It is the JSON of a response with ``stream: false``, not an event stream."""
        return self.data.lstrip()[:1] in (b"{", b"[")


def read_recording(source: str) -> Recording:
    """Read a file, or standard input for ``-``; gzip is undone, whatever the file is called.

    :raises click.UsageError: it can not be read.
    """
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{source} can not be read: {error.strerror or error}") from error
    if data.startswith(_GZIP):
        body, reason = _decompressed(data)
        torn = f"the gzip file is not whole: {reason}; what came before is shown" if reason else ""
        return Recording(source, body, torn)
    return Recording(source, data)


def read_whole_recording(source: str) -> Recording:
    """The same, for those who pass it on.

    :raises click.UsageError: it can not be read.
    :raises BadRecordingError: it begins like gzip and is no whole gzip file.
    """
    recording = read_recording(source)
    if recording.torn:
        raise BadRecordingError(f"{source}: {recording.torn.partition(';')[0]}")
    return recording


def _decompressed(data: bytes) -> tuple[bytes, str]:
    """All members of a gzip file, as far as they can be had, and what is wrong with it."""
    parts: list[bytes] = []
    rest = data
    while rest.startswith(_GZIP):
        member = zlib.decompressobj(_GZIP_BITS)
        at = 0
        try:
            while at < len(rest) and not member.eof:
                parts.append(member.decompress(rest[at : at + _STEP]))
                at += _STEP
            if not member.eof:
                parts.append(member.flush())
                return b"".join(parts), "it ends before its end mark"
        except zlib.error as error:
            return b"".join(parts), str(error)
        # Zeros may fill a file up.
        rest = (member.unused_data + rest[at:]).lstrip(b"\0")
    return b"".join(parts), "something else follows it" if rest else ""
