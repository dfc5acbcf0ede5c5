"""``ssefold replay``: fold a recorded body and print what is in it."""

from __future__ import annotations

import click
from rich.text import Text

from .playback import TRANSPORTS, replay_through
from .reading import SOURCE, Folding, Reading, Reads, Recording, fold_options, fold_recording, read_sidecar
from .report import as_dict, error_line, report_lines
from .terminal import TERMINAL_TEXT, as_json, json_option, new_console, one_line, print_lines

_EPILOG = """\b
Examples:
  ssefold replay recorded.sse
  ssefold replay recorded.sse.gz --mode incremental
  curl -sN localhost:30000/generate -d @payload.json -H 'content-type: application/json' | ssefold replay -
  ssefold replay recorded.sse --json | jq '.outputs[].mean_logprob'
  ssefold replay recorded.sse --through httpx --timing
"""


@click.command(epilog=_EPILOG, short_help="Fold a recording and print what it says.")
@click.argument("file", type=SOURCE)
@click.option("--through", type=click.Choice(TRANSPORTS), help="Send it through this transport too, and compare.")
@click.option("--timing", is_flag=True, help="With --through: at the pace of the recording.")
@fold_options
@json_option
@click.pass_context
def replay(ctx: click.Context, file: str, how: Folding, through: str | None, timing: bool, json_: bool) -> None:
    """Fold the recorded body in FILE (- for standard input) and print what it says.

    Reads any mode and version, gzip, and the JSON of a response with stream=false.  A bad stream gives status 1 and the
    reason; what arrived before is printed, too.

    --through sends the bytes from a server on loopback through a real transport, cut into the reads that `ssefold
    record` kept.
    """
    # Standard input can be read once only, and a transport is to get the bytes too.
    recording = Recording(file) if through is None else Recording(file, Recording(file).read())
    reading = fold_recording(recording, how)
    reads = read_sidecar(file, reading.size)
    if timing and (through is None or reads is None):
        raise click.UsageError("--timing needs --through and a recording with times (ssefold record keeps them)")
    if through is not None and reading.native:
        raise click.UsageError("--through needs an event stream; this is a response with stream=false")
    differences: list[str] = []
    numbers = ""
    plain = as_dict(reading) if json_ else {}
    if through is not None:
        differences, numbers = _sent(through, recording, reading, reads, timing=timing)
        plain["through"] = {"transport": through, "numbers": numbers, "differences": differences}
    if json_:
        click.echo(as_json(plain))
    elif not reading.native or reading.outputs:
        # JSON that is no response has nothing to show: its one message is the error.
        console = new_console()
        print_lines(console, report_lines(reading, text_limit=TERMINAL_TEXT if console.is_terminal else None))
        if through is not None:
            verdict = "; ".join(map(one_line, differences)) or "the same as from the bytes"
            style = "red" if differences else "green"
            print_lines(console, [Text(f"through {through}: {numbers}: ").append(verdict, style=style)])
    if reading.error is not None:
        click.echo(error_line(reading), err=True)
    ctx.exit(1 if reading.error is not None or differences else 0)


def _sent(
    through: str, recording: Recording, reading: Reading, reads: Reads | None, *, timing: bool
) -> tuple[list[str], str]:
    try:
        return replay_through(through, recording, reading, reads, timing=timing)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--through {through} needs {error.name}: pip install {error.name}") from error
