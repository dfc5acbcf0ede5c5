"""``ssefold diff``: two recordings, and the first token in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.text import Text

from ssefold import Accumulator

from .reading import SOURCE, Folding, Reading, Recording, Token, fold_options, fold_recording, tokens_of
from .report import error_dict, error_line, finish_words, sent_text
from .terminal import as_json, json_option, new_console, number, one_line, plural, print_lines, quoted

_EPILOG = """\b
Examples:
  ssefold diff cumulative.sse incremental.sse
  ssefold diff streamed.sse response.json
  ssefold diff a.sse b.sse --tolerance 1e-3
"""


@click.command(epilog=_EPILOG, short_help="Find the first token in which two recordings differ.")
@click.argument("a", type=SOURCE)
@click.argument("b", type=SOURCE)
@click.option("--tolerance", type=click.FloatRange(0), default=0.0, show_default=True, help="For logprobs.")
@fold_options
@json_option
@click.pass_context
def diff(ctx: click.Context, a: str, b: str, tolerance: float, how: Folding, json_: bool) -> None:
    """Compare what A and B say, output by output: token ids, logprobs, text, finish_reason.

    Versions and modes may differ, since what is compared is the answer.  Status 0: the same; 1: they differ, or one is
    a bad stream.
    """
    if a == b == "-":
        raise click.UsageError("only one of the two can be standard input")
    readings = [fold_recording(Recording(file), how) for file in (a, b)]
    found = [
        difference
        for index in sorted({index for reading in readings for index in reading.outputs})
        for difference in _of_output(readings[0], readings[1], index, tolerance)
    ]
    bad = [reading for reading in readings if reading.error is not None]
    if json_:
        errors = [error_dict(reading) for reading in readings]
        click.echo(as_json({"same": not found and not bad, "differences": found, "errors": errors}))
    elif any(reading.outputs for reading in readings):
        print_lines(new_console(), _lines(found, readings))
    for reading in bad:
        click.echo(error_line(reading), err=True)
    ctx.exit(1 if found or bad else 0)


def _of_output(a: Reading, b: Reading, index: int, tolerance: float) -> Iterator[dict[str, Any]]:
    one, other = a.outputs.get(index), b.outputs.get(index)
    if one is None or other is None:
        missing = a if one is None else b
        yield {"index": index, "what": "output", "message": f"{missing.name} has no output {index}"}
        return
    at = _first(one.token_ids, other.token_ids)
    if at is None and len(one.logprobs) == len(other.logprobs):
        at = _first_logprob(one.logprobs, other.logprobs, tolerance)
    if at is not None:
        tokens = [_token(reading, index, at) for reading in (a, b)]
        same_id = tokens[0] is not None and tokens[1] is not None and tokens[0].token_id == tokens[1].token_id
        yield {
            "index": index,
            "what": "logprob" if same_id else "token",
            "position": at,
            "a": None if tokens[0] is None else tokens[0]._asdict(),
            "b": None if tokens[1] is None else tokens[1]._asdict(),
        }
        return
    yield from _of_the_rest(one, other, index)


def _of_the_rest(one: Accumulator, other: Accumulator, index: int) -> Iterator[dict[str, Any]]:
    if len(one.logprobs) != len(other.logprobs):
        message = f"{len(one.logprobs)} logprobs in A, {len(other.logprobs)} in B"
        yield {"index": index, "what": "logprobs", "message": message}
    texts = sent_text(one), sent_text(other)
    if None not in texts and texts[0] != texts[1]:
        at = _first(texts[0] or "", texts[1] or "") or 0
        shown = [quoted((text or "")[max(at - 10, 0) : at + 20]) for text in texts]
        message = f"from character {at} on: {shown[0]} in A, {shown[1]} in B"
        yield {"index": index, "what": "text", "position": at, "message": message}
    if one.finish_reason != other.finish_reason:
        message = f"{finish_words(one.finish_reason)} in A, {finish_words(other.finish_reason)} in B"
        yield {"index": index, "what": "finish_reason", "message": message}


def _first(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    shorter = min(len(one), len(other))
    at = next((at for at in range(shorter) if one[at] != other[at]), None)
    return at if at is not None or len(one) == len(other) else shorter


def _first_logprob(one: Sequence[float | None], other: Sequence[float | None], tolerance: float) -> int | None:
    for at, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        if mine is None or theirs is None:
            if mine is not theirs:
                return at
        elif abs(mine - theirs) > tolerance:
            return at
    return None


def _token(reading: Reading, index: int, at: int) -> Token | None:
    tokens = tokens_of(reading, index)
    return tokens[at] if at < len(tokens) else None


def _lines(found: list[dict[str, Any]], readings: list[Reading]) -> Iterator[Text]:
    if not found:
        outputs = readings[0].outputs
        count = sum(len(output.token_ids) for output in outputs.values())
        said = f"{plural(len(outputs), 'output')}, {plural(count, 'token')}"
        if any(reading.error is not None for reading in readings):
            yield Text(f"no difference in what was read ({said}), but not both streams are whole", style="yellow")
        else:
            yield Text(f"the same: {said}", style="green")
    for one in found:
        if "message" in one:
            yield Text(f"output {one['index']}: {one['what']} differs: {one_line(one['message'])}", style="red")
            continue
        yield Text(f"output {one['index']}: the first {one['what']} that differs is #{one['position']}", style="red")
        for name in ("a", "b"):
            yield Text(f"  {name.upper()}  {_words(one[name])}")


def _words(token: dict[str, Any] | None) -> str:
    if token is None:
        return "nothing: it has ended"
    text = f"  {quoted(token['text'], 40)}" if token["text"] and token["of"] == 1 else ""
    logprob = token["logprob"]
    exact = number(logprob) if logprob is None else repr(logprob)
    return f"id {token['token_id']}, logprob {exact}, event {token['event']} (byte {token['offset']:,}){text}"
