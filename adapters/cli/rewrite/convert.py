"""``ssefold convert``: the same answer, written as another server would have written it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import click

from ssefold import Accumulator, GenerateDecoder, StreamError, Update, encode_event
from ssefold.views import copy_json

from ..reading import MODES, SOURCE, BadRecordingError, Mode, Recording, events_of, fold_recording, read_recording
from ..report import error_line
from ..terminal import as_compact_json, as_json

Target: TypeAlias = Literal["cumulative", "incremental", "native"]

_EPILOG = """\b
Examples:
  ssefold convert recorded.sse --to native
  ssefold convert recorded.sse --to incremental -o incremental.sse
  ssefold convert recorded.sse.gz --to cumulative | ssefold check -
"""
_NO_LIMIT = 2**62
_ROWS = "output_token_logprobs"
#: Totals beside lists that a converted chunk must not contradict.
_TOTALS = ("completion_tokens", "output_token_logprobs_length")


@click.command(epilog=_EPILOG, short_help="Write a recording in another mode.")
@click.argument("file", type=SOURCE)
@click.option("--to", "target", type=click.Choice(["cumulative", "incremental", "native"]), required=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write; default: standard output.")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How the server was started.")
@click.option("--json", "json_", is_flag=True, help="With -o: print a summary as JSON.")
@click.pass_context
def convert(ctx: click.Context, file: str, target: str, output: str | None, mode: str, json_: bool) -> None:
    """Write FILE as chunks that repeat everything, as deltas, or as the response that stream=false gives.

    A bad stream is converted as far as it can be folded, without [DONE], and gives status 1.
    """
    if json_ and output is None:
        raise click.UsageError("--json needs -o: standard output carries the result")
    recording = read_recording(file)
    reading = fold_recording(recording, cast("Mode", mode))
    if target == "native":
        responses = [reading.outputs[index].native_response() for index in sorted(reading.outputs)]
        listed = len(responses) != 1 or 0 not in reading.outputs
        result = (as_compact_json(responses if listed else responses[0]) + "\n").encode("utf-8")
    else:
        events = _native_chunks(reading.outputs.values()) if reading.native else _chunks(recording, cast("Mode", mode))
        result = b"".join(_written(event, cast("Target", target)) for event in events)
        result += encode_event("[DONE]") if reading.error is None and (reading.done or reading.native) else b""
    if output is None:
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    else:
        Path(output).write_bytes(result)
    if json_:
        click.echo(as_json({"output": output, "bytes": len(result), "outputs": len(reading.outputs)}))
    if reading.error is not None:
        click.echo(error_line(reading), err=True)
        ctx.exit(1)


class _Chunk(NamedTuple):
    """An update and the output that it made; ``tokens``, ``rows`` and ``text`` are lengths from before.

    :ivar listed: chunks carry their ``index``.
    """

    update: Update
    output: Accumulator
    tokens: int
    rows: int
    text: int
    listed: bool


def _chunks(recording: Recording, mode: Mode) -> Iterator[_Chunk]:
    """Every chunk of a stream, as far as it can be folded."""
    decoder = GenerateDecoder(mode=mode, max_event_size=_NO_LIMIT)
    known: dict[int, tuple[int, int, int]] = {}
    for event in events_of(recording.data):
        try:
            updates = decoder.feed(recording.data[event.start : event.end])
        except StreamError:
            return
        for update in updates:
            output = decoder.outputs[update.index]
            before = known.get(update.index, (0, 0, 0))
            yield _Chunk(update, output, *before, b'"index":' in event.data)
            known[update.index] = (len(output.token_ids), len(output.logprobs), len(output.text()))


def _native_chunks(outputs: Collection[Accumulator]) -> Iterator[_Chunk]:
    """Responses as streams of one chunk each."""
    listed = len(outputs) > 1
    for output in outputs:
        yield _Chunk(Update(output.index), output, 0, 0, 0, listed)


def _written(chunk: _Chunk, target: Target) -> bytes:
    output = chunk.output
    payload = output.native_response()
    meta: dict[str, Any] = payload["meta_info"]
    for name, total in zip(_TOTALS, (len(output.token_ids), len(output.logprobs)), strict=True):
        if type(meta.get(name)) is int and total:
            meta[name] = total
    if target == "incremental" and not _is_queue_abort(output):
        if "text" in payload:
            payload["text"] = _new_text(chunk)
        if "output_ids" in payload:
            payload["output_ids"] = payload["output_ids"][chunk.tokens :]
        if _ROWS in meta:
            meta[_ROWS] = meta[_ROWS][chunk.rows :]
        for name in output.lanes:
            if name in meta and name != _ROWS:
                meta[name] = meta[name][len(meta[name]) - (len(output.token_ids) - chunk.tokens) :]
    if chunk.listed:
        payload["index"] = output.index
    return encode_event(as_compact_json(copy_json(payload)))


def _new_text(chunk: _Chunk) -> str:
    update = chunk.update
    if update.text is not None and not update.replace and update.text_start < chunk.text:
        raise BadRecordingError(
            f"output {update.index}: text was rewritten from character {update.text_start} of {chunk.text} on, which "
            "deltas can not say; convert to cumulative or native, or give --mode"
        )
    return chunk.output.text()[chunk.text :]


def _is_queue_abort(output: Accumulator) -> bool:
    # Such a chunk is a snapshot in every mode.
    finish = output.finish_reason
    return finish is not None and finish.type == "abort" and not output.meta_info.get("prompt_tokens")
