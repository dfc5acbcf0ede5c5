"""Where output goes: a terminal gets colours and wrapped lines, a pipe gets plain and whole ones.

Knows streams of the process, and nothing of what is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Characters of an output's text on a terminal; ``--json`` and pipes have all of it.
TERMINAL_TEXT = 1200


class _Output(Console):
    """A console that leaves a closed pipe to the command as a whole."""

    def on_broken_pipe(self) -> None:
        """Rich calls it while the error is being handled; its own would end the process with status 1."""
        raise  # noqa: PLE0704


def new_console() -> Console:
    """Standard output as it is now (tests and pipes change it)."""
    return _Output(highlight=False)


class Hanging(Text):
    """A line whose continuations stand below its column ``hang``."""

    hang: int = 0


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Lines; wrapped on a terminal only, so that what is piped can be searched."""
    for line in lines:
        if console.is_terminal:
            for part in _wrapped(console, line):
                console.print(part)
        else:
            console.print(line, soft_wrap=True)


def _wrapped(console: Console, line: Text) -> Iterator[Text]:
    if line.cell_len <= console.width:
        yield line
        return
    indent = line.hang if isinstance(line, Hanging) else len(line.plain) - len(line.plain.lstrip(" "))
    head = line[:indent]
    for part in line[indent:].wrap(console, max(console.width - indent, 8)):
        yield head + part
        head = Text(" " * indent)


def json_option(function: _Command) -> _Command:
    """The option that every command has."""
    option: Callable[[_Command], _Command] = click.option(
        "--json", "json_", is_flag=True, help="Print JSON, for machines."
    )
    return option(function)
