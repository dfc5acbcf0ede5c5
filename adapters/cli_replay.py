"""``ssefold replay``: fold a recorded body and tell what is in it."""

from __future__ import annotations

from typing import cast

import click

from .cli_console import TERMINAL_TEXT, json_option, new_console, print_lines
from .cli_fold import MODES, Mode, fold_recording
from .cli_read import SOURCE, read_recording
from .cli_report import as_dict, error_line, report_lines
from .cli_text import as_json

_EPILOG = """\b
Examples:
  ssefold replay recorded.sse
  ssefold replay recorded.sse.gz --mode incremental
  curl -sN localhost:30000/generate -d @payload.json -H 'content-type: application/json' | ssefold replay -
  ssefold replay recorded.sse --json | jq '.outputs[].mean_logprob'
"""


@click.command(epilog=_EPILOG, short_help="Fold a recording and print what it says.")
@click.argument("file", type=SOURCE)
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How the server was started.")
@json_option
@click.pass_context
def replay(ctx: click.Context, file: str, mode: str, json_: bool) -> None:
    """Fold the recorded body in FILE (- for standard input) and print what it says.

    Any mode and version; gzip is undone; the JSON of a response with stream=false will do as well.  A bad stream gives
    status 1 and its reason, and what had come before is printed all the same.
    """
    reading = fold_recording(read_recording(file), cast("Mode", mode))
    if json_:
        click.echo(as_json(as_dict(reading)))
    else:
        console = new_console()
        print_lines(console, report_lines(reading, text_limit=TERMINAL_TEXT if console.is_terminal else None))
    if reading.error is not None:
        click.echo(error_line(reading), err=True)
        ctx.exit(1)
