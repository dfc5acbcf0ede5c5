"""``ssefold inspect``: all details of a recording, for debugging."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.text import Text

from .output import OUTPUT, NewFile, name_files
from .reading import (
    SOURCE,
    Folding,
    Reading,
    Reads,
    Recording,
    Timeline,
    Token,
    fold_options,
    fold_recording,
    percentile,
    read_sidecar,
    timeline_of,
    tokens_of,
)
from .report import (
    Guess,
    as_dict,
    error_line,
    field,
    finding_line,
    finish_words,
    guess_profile,
    html_report,
    is_told,
    mean_logprob,
    routing_summary,
    sent_text,
    summaries,
    top_p_summary,
)
from .terminal import as_json, json_option, new_console, number, one_line, plural, print_lines, quoted, surprise

_EPILOG = """\b
Examples:
  ssefold inspect recorded.sse
  ssefold inspect recorded.sse --tokens
  ssefold inspect recorded.sse --html report.html --layers 48
"""
_MOST_SURPRISING = 5
_TEXT = 4000


@dataclass(frozen=True)
class Inspected:
    """A reading with what was found out about it."""

    reading: Reading
    guess: Guess | None
    reads: Reads | None
    timeline: Timeline | None


@click.command(epilog=_EPILOG, short_help="Look closely at a recording.")
@click.argument("file", type=SOURCE)
@fold_options
@click.option("--tokens", "with_tokens", is_flag=True, help="List every token.")
@click.option("--html", type=OUTPUT, help="Write a report with pictures, one page, to this file.")
@click.option("--layers", type=click.IntRange(1), help="Layers of the model, for the load of its experts.")
@json_option
@click.pass_context
def inspect(
    ctx: click.Context, file: str, how: Folding, with_tokens: bool, html: str | None, layers: int | None, json_: bool
) -> None:
    """Show lanes and server version, tokens by surprise, replay arrays, times and anomalies of FILE.

    Times come from the sidecar that `ssefold record` writes.
    """
    if layers is not None and html is None:
        raise click.UsageError("--layers is for the report: give --html as well")
    reading = fold_recording(Recording(file), how)
    reads = read_sidecar(file, reading.size)
    timeline = timeline_of(reading, reads) if reads is not None else None
    found = Inspected(reading, guess_profile(reading), reads, timeline)
    if html is not None:
        if layers is not None:
            _check_layers(reading, layers)
        with NewFile(html, [file]) as new:
            new.file.write(html_report(found.reading, _facts(found), timeline, layers or 1).encode("utf-8"))
            new.commit()
    if json_:
        click.echo(as_json(_plain(found, with_tokens=with_tokens)))
    else:
        console = new_console()
        print_lines(console, _lines(found, with_tokens=with_tokens))
    name_files(html)
    if reading.error is not None:
        click.echo(error_line(reading), err=True)
        ctx.exit(1)


def _check_layers(reading: Reading, layers: int) -> None:
    routed = [
        (output.routed_experts, output) for output in reading.outputs.values() if output.routed_experts is not None
    ]
    if not routed:
        click.echo("ssefold: --layers has no effect: no output has routed experts", err=True)
    for routing, output in routed:
        row = routing_summary(routing, output).per_row
        if row and row % layers:
            raise click.BadParameter(
                f"{layers} layers do not divide the {row} numbers that a token has", param_hint="--layers"
            )


def _facts(found: Inspected) -> list[tuple[str, str]]:
    """About the body as a whole."""
    reading = found.reading
    kind = "a response with stream=false" if reading.native else plural(reading.events, "event")
    done = "" if reading.native else ", [DONE]" if reading.done else ", no [DONE]"
    facts = [("body", f"{plural(reading.size, 'byte')}, {kind}{done}")]
    if found.guess is not None:
        facts.append(("written by", found.guess.words()))
    if found.timeline is None or found.reads is None:
        facts.append(("times", "unknown: `ssefold record` keeps them"))
    else:
        facts.append(("times", _times(found.timeline, found.reads)))
    return facts


def _times(timeline: Timeline, reads: Reads) -> str:
    parts: list[str] = []
    if timeline.ttft is not None:
        parts.append(f"first token after {_ms(timeline.ttft)}")
    if timeline.gaps:
        shares = ", ".join(f"p{share} {_ms(percentile(timeline.gaps, share / 100))}" for share in (50, 90, 99))
        parts.append(f"between tokens {shares}, longest {_ms(max(timeline.gaps))}")
    parts.append(f"{plural(len(reads.times), 'read')} in {timeline.elapsed:.2f} s")
    if reads.end != "complete":
        parts.append(f"recording {one_line(reads.end or 'cut off')}")
    return "; ".join(parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def _lines(found: Inspected, *, with_tokens: bool) -> Iterator[Text]:
    reading = found.reading
    yield Text(one_line(reading.name), style="bold")
    for name, value in _facts(found):
        yield field(name, value)
    for at, finding in enumerate(reading.findings_of(None)):
        yield field("" if at else "anomalies", "").append_text(finding_line(finding, told=is_told(finding, reading)))
    for index in sorted(reading.outputs):
        yield Text()
        yield from _output(reading, index, with_tokens=with_tokens)


def _output(reading: Reading, index: int, *, with_tokens: bool) -> Iterator[Text]:
    output = reading.outputs[index]
    finish = output.finish_reason
    mean = mean_logprob(output)
    yield Text(f"output {index}", style="bold")
    yield field("finish", one_line(finish_words(finish)), "red" if finish is None or finish.is_failure else "default")
    yield field("tokens", f"{len(output.token_ids):,}" + ("" if mean is None else f", mean logprob {mean:.4f}"))
    yield field("lanes", one_line(", ".join(f"{name} {lane or 'unknown'}" for name, lane in output.lanes.items())))
    tokens = tokens_of(reading, index)
    yield field("text", "").append_text(_coloured(tokens, sent_text(output)))
    worst = sorted((one for one in tokens if one.logprob is not None), key=lambda one: one.logprob or 0.0)
    if worst:
        yield field("surprises", "").append_text(_surprises(worst[:_MOST_SURPRISING]))
    if output.top_p is not None:
        top_p = top_p_summary(output.top_p, output.token_ids)
        kept = f"{top_p.fewest} to {top_p.most} ids kept, {top_p.mean:.1f} on average"
        missing = f"; {plural(top_p.missing, 'row')} without the sampled id" if top_p.missing else ""
        yield field("top-p", f"{plural(top_p.rows, 'row')}: {kept}{missing}")
    if output.routed_experts is not None:
        routing = routing_summary(output.routed_experts, output)
        shape = f" = {routing.rows:,} rows x {routing.per_row}" if routing.rows else ""
        busiest = sorted(routing.load.items(), key=lambda item: -item[1])[:3]
        chosen = ", ".join(f"{expert} ({count:,} times)" for expert, count in busiest)
        yield field("experts", f"{routing.numbers:,} numbers{shape}; {len(routing.load)} experts, busiest {chosen}")
    findings = reading.findings_of(index)
    for at, finding in enumerate(findings):
        line = finding_line(finding, told=is_told(finding, reading))
        yield field("" if at else "anomalies", "").append_text(line)
    if not findings:
        yield field("anomalies", "none")
    if with_tokens:
        yield from _table(tokens)


def _coloured(tokens: Sequence[Token], whole: str | None) -> Text:
    if whole is None:
        return Text("none sent")
    text = Text()
    shown = 0
    for token in tokens:
        if shown > _TEXT:
            text.append(f" … {len(whole) - shown:,} more characters", style="dim")
            break
        text.append(quoted(token.text)[1:-1], style=surprise(token.event_logprob))
        shown += len(token.text)
    return text if tokens else Text(quoted(whole))


def _surprises(worst: Sequence[Token]) -> Text:
    line = Text()
    for at, token in enumerate(worst):
        line.append(", " if at else "")
        what = quoted(token.text, 24) if token.text and token.of == 1 else f"id {token.token_id}"
        line.append(f"#{token.position} {what} {number(token.logprob)}", style=surprise(token.logprob))
    return line


def _table(tokens: Sequence[Token]) -> Iterator[Text]:
    yield Text(f"  {'#':>7} {'token id':>9} {'logprob':>9} {'event':>6} {'byte':>10}  text", style="dim")
    for token in tokens:
        logprob = number(token.logprob)
        line = Text(f"  {token.position:>7} {token.token_id:>9} {logprob:>9} {token.event:>6} {token.offset:>10}")
        if token.of > 1:  # a bracket around the tokens of one event, and their text beside it
            line.append("  " + ("┌" if not token.place else "└" if token.place == token.of - 1 else "│"))
        yield line.append(f"  {quoted(token.text)}" if token.text else "", style=surprise(token.event_logprob))


def _plain(found: Inspected, *, with_tokens: bool) -> dict[str, Any]:
    plain = as_dict(found.reading)
    guess, timeline = found.guess, found.timeline
    plain["server"] = None if guess is None else {**asdict(guess), "words": guess.words()}
    plain["timeline"] = None if timeline is None else asdict(timeline)
    for output in plain["outputs"]:
        output["replay"] = summaries(found.reading.outputs[output["index"]])
        if with_tokens:
            output["token_list"] = [token._asdict() for token in tokens_of(found.reading, output["index"])]
    return plain
