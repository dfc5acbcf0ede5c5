"""Files that the command writes: to a temporary file first, then renamed, so that a failure loses nothing.

Knows files and standard output; knows nothing of what is written.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from .terminal import one_line

if TYPE_CHECKING:
    from typing_extensions import Self

OUTPUT = click.Path(dir_okay=False)


class NewFile:
    """Write to ``file`` inside the block; ``commit`` puts it in its place.  Without it, nothing has changed.

    :param path: where; None: standard output, which then gets all of it at once.
    :param inputs: files that must not be overwritten, since they are being read.
    :raises click.UsageError: ``path`` is one of them.
    """

    file: IO[bytes]

    def __init__(self, path: str | None, inputs: Iterable[str] = ()) -> None:
        self.path = path
        # A link stays a link.
        self._target = None if path is None else Path(path).resolve()
        self._beside: Path | None = None
        for one in inputs:
            if one != "-" and self._target is not None and _is_same(Path(one), self._target):
                raise click.UsageError(f"{one_line(one)} is read: give another file to write to")

    def __enter__(self) -> Self:
        if self._target is None or (self._target.exists() and not self._target.is_file()):
            self.file = tempfile.TemporaryFile()  # closed on exit
            return self
        beside = self._target.with_name(f"{self._target.name}.{os.getpid()}.part")
        try:
            self.file = beside.open("x+b")
        except OSError as error:
            error.filename = self.path
            raise
        self._beside = beside
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.file.close()
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)

    def commit(self) -> None:
        """Put what was written in its place."""
        self.file.flush()
        if self._target is None:
            self._copy_to(sys.stdout.buffer)
        elif self._beside is None:  # a device or a pipe
            with self._target.open("wb") as place:
                self._copy_to(place)
        else:
            self.file.close()
            with suppress(OSError):  # there is none yet
                shutil.copymode(self._target, self._beside)
            self._beside.replace(self._target)
            self._beside = None

    def _copy_to(self, place: IO[bytes]) -> None:
        self.file.seek(0)
        shutil.copyfileobj(self.file, place)
        place.flush()


def name_files(*paths: str | None) -> None:
    """Say on standard error what was written."""
    named = [one_line(path) for path in paths if path is not None]
    if named:
        click.echo(f"wrote {' and '.join(named)}", err=True)


def _is_same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one.samefile(other)
    return False
