"""Recorded bodies from files and pipes, read in pieces; gzip is decompressed.

Nothing here holds a whole body: a recording of some hundred megabytes is read with a few of memory.  Knows files; what
is in them is :mod:`.fold`'s matter.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import chain
from typing import IO, Any

import click

from ..terminal import one_line, reading_line

_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31
_PIECE = 2**18
#: What one damaged place of a gzip file costs at most, in compressed bytes.
_STEP = 1024

#: A file that must exist, or ``-``.
SOURCE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str)


class BadRecordingError(click.ClickException):
    """A file is not what it should be: one line, exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        click.echo(f"ssefold: {one_line(self.message)}", file=file, err=file is None)


class Recording:
    """One recorded response body; gzip is decompressed, whatever the file's name.

    :param name: as the user gave it; ``-`` is standard input.
    :param data: the bytes, or a file that has them; None: the file called ``name``.
    :ivar torn: why the gzip file is not whole; known after all pieces were read.
    """

    def __init__(self, name: str, data: bytes | IO[bytes] | None = None) -> None:
        self.name = name
        self.torn: str = ""
        self._data = data

    def pieces(self) -> Iterator[bytes]:
        """The body, from its beginning, with a line of progress on a terminal; standard input only once.

        :raises click.UsageError: the file cannot be read.
        """
        if isinstance(self._data, bytes):
            yield from self._unpacked(iter([self._data]))
        elif self._data is not None:
            self._data.seek(0)
            yield from self._unpacked(_read(self._data, self.name))
        elif self.name == "-":
            yield from self._unpacked(_read(sys.stdin.buffer, self.name))
        else:
            try:
                file = open(self.name, "rb")  # noqa: PTH123, SIM115  # closed below; a str names the file as the user did
            except OSError as error:
                raise click.UsageError(f"{self.name} cannot be read: {error.strerror or error}") from error
            with file:
                yield from self._unpacked(_read(file, self.name))

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces())

    def read_whole(self) -> bytes:
        """The whole body, for those who pass it on.

        :raises BadRecordingError: it begins like gzip and is no whole gzip file.
        """
        body = self.read()
        self.check_whole()
        return body

    def check_whole(self) -> None:
        """After reading.

        :raises BadRecordingError: it begins like gzip and is no whole gzip file.
        """
        if self.torn:
            raise BadRecordingError(f"{self.name}: {self.torn}")

    def _unpacked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        first = b""
        for chunk in chunks:
            first += chunk
            if len(first) >= len(_GZIP):
                break
        if not first.startswith(_GZIP):
            yield first
            yield from chunks
            return
        reason = yield from _decompressed(_steps(first, chunks))
        self.torn = f"the gzip file is not whole: {reason}" if reason else ""


def _read(file: IO[bytes], name: str) -> Iterator[bytes]:
    total = None
    with suppress(OSError):  # a stand-in for standard input has no number
        status = os.fstat(file.fileno())
        total = status.st_size if stat.S_ISREG(status.st_mode) else None
    done = 0
    with reading_line(one_line(name), total) as tell:
        while piece := file.read(_PIECE):
            yield piece
            done += len(piece)
            tell(done)


def _steps(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chain([first], chunks):
        for at in range(0, len(chunk), _STEP):
            yield chunk[at : at + _STEP]


def _decompressed(steps: Iterator[bytes]) -> Generator[bytes, None, str]:
    """All members of a gzip file, as far as they can be had; returns what is wrong with it."""
    member: Any = None
    rest = b""
    for step in steps:
        rest += step
        while rest:
            if member is None:
                rest = rest.lstrip(b"\0")  # zeros may fill a file up
                if rest.startswith(_GZIP):
                    member = zlib.decompressobj(_GZIP_BITS)
                elif _GZIP.startswith(rest):
                    break
                else:
                    return "something else follows it"
            try:
                yield member.decompress(rest)
            except zlib.error as error:
                return str(error)
            rest = b""
            if member.eof:
                rest, member = member.unused_data, None
    return "it ends before its end mark" if member is not None else "something else follows it" if rest else ""
