"""``ssefold check`` and ``ssefold explain``: a linter for streams, and what its codes mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click
from rich.text import Text

from ..reading import SOURCE, Folding, Reading, Recording, fold_options, fold_recording
from ..report import error_dict, finding_line
from ..terminal import as_json, json_option, new_console, one_line, plural, print_lines
from .rules import RULES, Rule

_CHECK_EPILOG = """\b
Examples:
  ssefold check recorded.sse
  ssefold check *.sse.gz
  ssefold check --json recorded.sse | jq -r '.[].findings[].code'
"""
_EXPLAIN_EPILOG = """\b
Examples:
  ssefold explain SG103
  ssefold explain
"""


@click.command(epilog=_CHECK_EPILOG, short_help="Find problems and oddities in recordings.")
@click.argument("files", type=SOURCE, nargs=-1, required=True)
@fold_options
@json_option
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], how: Folding, json_: bool) -> None:
    """Find problems and oddities in recordings, with their byte offsets.

    The status is 1 if there is an error; warnings and notes leave it 0.
    """
    console = new_console()
    plain: list[dict[str, object]] = []
    bad = False
    for file in files:
        reading = fold_recording(Recording(file), how, steps=False)
        bad = bad or _has_error(reading)
        if json_:
            plain.append(_plain(reading))
        else:
            print_lines(console, _lines(reading))
    if json_:
        click.echo(as_json(plain))
    ctx.exit(1 if bad else 0)


@click.command(epilog=_EXPLAIN_EPILOG, short_help="Say what a code of `check` means.")
@click.argument("code", required=False)
@json_option
def explain(code: str | None, json_: bool) -> None:
    """Say what a CODE of `check` means and what to do about it; without one, list all."""
    rule = None if code is None else RULES.get(code.upper())
    if code is not None and rule is None:
        raise click.UsageError(f"there is no code {one_line(code)}; `ssefold explain` lists them")
    if json_:
        click.echo(as_json(rule._asdict() if rule else [one._asdict() for one in RULES.values()]))
        return
    print_lines(new_console(), _explained(rule) if rule else (_title(one) for one in RULES.values()))


def _plain(reading: Reading) -> dict[str, object]:
    findings = [finding.as_dict() for finding in reading.findings]
    return {"name": reading.name, "error": error_dict(reading), "findings": findings}


def _has_error(reading: Reading) -> bool:
    return reading.error is not None or any(finding.rule.severity == "error" for finding in reading.findings)


def _lines(reading: Reading) -> Iterator[Text]:
    name = Text(one_line(reading.name), style="bold")
    if not reading.findings:
        yield name.append(": nothing remarkable", style="default not bold")
        return
    counts = Counter(finding.rule.severity for finding in reading.findings)
    counted = ", ".join(plural(counts[kind], kind) for kind in ("error", "warning", "note") if counts[kind])
    yield name.append(f": {counted}", style="default not bold")
    for finding in reading.findings:
        where = "" if finding.index is None else f"output {finding.index}: "
        yield Text(f"  {where}").append_text(finding_line(finding))


def _title(rule: Rule) -> Text:
    return Text(f"{rule.code}  {rule.severity:<8} {rule.title}")


def _explained(rule: Rule) -> Iterator[Text]:
    yield Text(f"{rule.code} {rule.severity}: {rule.title}", style="bold")
    yield Text()
    yield Text(rule.explanation)
    yield Text()
    yield Text("What to do: ", style="bold").append(rule.remedy, style="default not bold")
