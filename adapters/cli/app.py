"""The ``ssefold`` command: its subcommands, its exit statuses, and how it reports a failure.

Exit statuses: 0 success; 1 the stream is bad, or the recordings differ; 2 the command was used wrongly,
something it needs is missing, or a file cannot be read or written; 141 the reader of its
output closed the pipe, as for any tool.  What a subcommand does is in its own module, which
is imported only when it is used: importing all of them takes a third of a second.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from ssefold import StreamError

from .check import words
from .terminal import one_line

_EPILOG = """\b
Exit status:
  0  success
  1  the stream is bad, or the recordings differ
  2  bad usage, a missing package, or a file cannot be read or written
  141  the reader of the output closed the pipe

\b
Shell completion:
  eval "$(_SSEFOLD_COMPLETE=bash_source ssefold)"     also zsh_source, fish_source
"""

#: What a shell shows of a tool that SIGPIPE ends: 128 + 13.
CLOSED_PIPE = 141

#: Subcommand -> its module, in which it has the same name.
_MODULES = {
    "anonymize": "rewrite.anonymize",
    "check": "check.command",
    "convert": "rewrite.convert",
    "demo": "demo.command",
    "diff": "diff",
    "explain": "check.command",
    "inspect": "inspect",
    "record": "record.command",
    "replay": "replay",
    "serve-fake": "playback.command",
}


class App(click.Group):
    """Reports a bad stream in one line, with status 1, and a file error with status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A subcommand, imported now."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"{__package__}.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; help, version and completion are written before any subcommand is known."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            _tell("standard output", error)
            sys.exit(2)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments, and write help or version if they ask for it."""
        with _closed_pipe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            with _closed_pipe():
                return super().invoke(ctx)
        except StreamError as error:
            click.echo(f"ssefold: {one_line(words(error)) or 'failed'}", err=True)
            ctx.exit(1)
        except OSError as error:
            _tell(f"{ctx.invoked_subcommand} failed", error)
            ctx.exit(2)


@contextmanager
def _closed_pipe() -> Iterator[None]:
    """End quietly when the reader of standard output closes the pipe."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        # What is still buffered would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        sys.exit(CLOSED_PIPE)


def _tell(unnamed: str, error: OSError) -> None:
    reason = error.strerror or str(error) or type(error).__name__
    # Standard output has no name.
    what = unnamed if error.filename is None else str(error.filename)
    with suppress(OSError):
        click.echo(f"ssefold: {one_line(what)}: {one_line(reason)}", err=True)


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(package_name="ssefold", message="%(prog)s %(version)s")
def app() -> None:
    """Look at streams of SGLang's /generate: fold them, check them, compare them."""
