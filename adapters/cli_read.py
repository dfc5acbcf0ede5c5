"""Recorded bodies from files and pipes: bytes in whatever way they were kept.

Knows files; what is in them is :mod:`.cli_fold`'s matter.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from .cli_text import one_line

_GZIP = b"\x1f\x8b"

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
    :ivar data: the body, decompressed.
    """

    name: str
    data: bytes

    @property
    def is_native(self) -> bool:
        """It is the JSON of a response with ``stream: false``, not an event stream."""
        return self.data.lstrip()[:1] in (b"{", b"[")


def read_recording(source: str) -> Recording:
    """Read a file, or standard input for ``-``; gzip is undone, whatever the file is called.

    :raises click.UsageError: it can not be read.
    :raises BadRecordingError: it begins like gzip and is no whole gzip file.
    """
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{source} can not be read: {error.strerror or error}") from error
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadRecordingError(f"{source} is no whole gzip file: {error}") from error
    return Recording(source, data)
