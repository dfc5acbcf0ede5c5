"""``ssefold convert``: the same answer, written as another server would have written it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import IO, Any, Literal, TypeAlias

import click

from ssefold import Accumulator, Update, encode_event

from ..output import OUTPUT, NewFile, name_files
from ..reading import SOURCE, BadRecordingError, Event, Folding, Recording, fold_options, fold_recording
from ..report import error_line
from ..terminal import as_compact_json, as_json
from .grown import Grown, GrownText

Target: TypeAlias = Literal["cumulative", "incremental", "native"]

_EPILOG = """\b
Examples:
  ssefold convert recorded.sse --to native
  ssefold convert recorded.sse --to incremental -o incremental.sse
  ssefold convert recorded.sse.gz --to cumulative | ssefold check -
"""
_ROWS = "output_token_logprobs"
_GROWN = ("text", "output_ids", "meta_info")
#: Totals beside lists that a converted chunk must not contradict.
_TOTALS = ("completion_tokens", "output_token_logprobs_length")


@click.command(epilog=_EPILOG, short_help="Write a recording in another mode.")
@click.argument("file", type=SOURCE)
@click.option("--to", "target", type=click.Choice(["cumulative", "incremental", "native"]), required=True)
@click.option("-o", "--output", type=OUTPUT, help="Where to write; default: standard output.")
@fold_options
@click.option("--json", "json_", is_flag=True, help="With -o: print a summary as JSON.")
@click.pass_context
def convert(ctx: click.Context, file: str, target: Target, output: str | None, how: Folding, json_: bool) -> None:
    """Write FILE as chunks that repeat everything, as deltas, or as the response that stream=false gives.

    A bad stream is converted up to its error, without [DONE], and gives status 1.  If the input is no stream of
    /generate, the command says why and writes nothing.
    """
    if json_ and output is None:
        raise click.UsageError("--json needs -o: standard output carries the result")
    with NewFile(output, [file]) as new:
        writer = _Writer(new.file, target)
        reading = fold_recording(Recording(file), how, steps=False, watch=None if target == "native" else writer.event)
        if not reading.outputs:
            click.echo(error_line(reading), err=True)
            ctx.exit(1)
        if target == "native":
            responses = [reading.outputs[index].native_response() for index in sorted(reading.outputs)]
            listed = len(responses) != 1 or 0 not in reading.outputs
            new.file.write((as_compact_json(responses if listed else responses[0]) + "\n").encode("utf-8"))
        else:
            if reading.native:
                writer.responses(reading.outputs.values())
            if reading.error is None and (reading.done or reading.native):
                new.file.write(encode_event("[DONE]"))
        size = new.file.tell()
        new.commit()
    name_files(output)
    if json_:
        click.echo(as_json({"output": output, "bytes": size, "outputs": len(reading.outputs)}))
    if reading.error is not None:
        click.echo(error_line(reading), err=True)
        ctx.exit(1)


class _Writer:
    """Writes a chunk for each update."""

    def __init__(self, file: IO[bytes], target: Target) -> None:
        self._file = file
        self._target = target
        self._outputs: dict[int, _Output] = {}

    def event(self, event: Event, updates: Sequence[Update], outputs: Mapping[int, Accumulator]) -> None:
        """See :data:`~..reading.fold.Watch`."""
        for update in updates:
            listed = event.data is not None and b'"index":' in event.data
            self._write(update, outputs[update.index], listed=listed)

    def responses(self, outputs: Collection[Accumulator]) -> None:
        """Responses as streams of one chunk each."""
        for output in outputs:
            response = output.native_response()
            if len(outputs) > 1:
                response["index"] = output.index
            self._file.write(encode_event(as_compact_json(response)))

    def _write(self, update: Update, output: Accumulator, *, listed: bool) -> None:
        known = self._outputs.setdefault(update.index, _Output())
        whole = self._target == "cumulative" or _is_queue_abort(output)  # which is a snapshot in every mode
        self._file.write(b"data: " + known.chunk(update, output, whole=whole, listed=listed) + b"\n\n")


class _Output:
    """What was written of one output, as JSON that only grows."""

    def __init__(self) -> None:
        self._text: GrownText | None = None
        self._lists: dict[str, Grown] = {}
        self._ids: Grown | None = None
        self._rest: dict[str, Any] = {}
        self._tokens = 0

    def chunk(self, update: Update, output: Accumulator, *, whole: bool, listed: bool) -> bytes:
        """The JSON of a chunk."""
        if not self._tokens or update.finish_reason is not None:
            self._look_at(output)
        meta = dict(output.meta_info)
        for name, total in zip(_TOTALS, (len(output.token_ids), len(output.logprobs)), strict=True):
            if type(meta.get(name)) is int and total:
                meta[name] = total
        text = None
        if update.text is not None:
            self._text = self._text or GrownText()
            rewritten = self._text.take(update.text_start, update.text)
            if rewritten and not whole:
                raise BadRecordingError(
                    f"output {update.index}: text was rewritten from character {update.text_start} on, which "
                    "deltas cannot say; convert to cumulative or native, or give --mode"
                )
        if self._text is not None:
            text = self._text.json(whole=whole)
        known = self._tokens
        self._tokens = len(output.token_ids)
        ids = None if self._ids is None else self._ids.take(output.token_ids[known:]).json(whole=whole)
        lists = self._take_lists(update, output, whole=whole)
        # In the server's order.
        names = dict.fromkeys([*update.meta_info, *lists, *meta])
        fields = {name: lists[name] if name in lists else _json(meta.get(name)) for name in names}
        rest = {**self._rest, "index": output.index} if listed else self._rest
        return _object(
            {
                **({} if text is None else {"text": text}),
                **({} if ids is None else {"output_ids": ids}),
                "meta_info": _object(fields),
                **{name: _json(value) for name, value in rest.items()},
            }
        )

    def _take_lists(self, update: Update, output: Accumulator, *, whole: bool) -> dict[str, bytes]:
        lists: dict[str, bytes] = {}
        own = update.meta_info
        for name in (_ROWS, *output.lanes):
            rows: Any = own.get(name)
            if rows is None and name not in self._lists:
                continue
            grown = self._lists.setdefault(name, Grown())
            # An update that replaces has all rows once more.
            rows = list(rows or ())
            lists[name] = grown.take(rows[grown.count :] if update.replace else rows).json(whole=whole)
        return lists

    def _look_at(self, output: Accumulator) -> None:
        """Which fields the server sends."""
        sent = output.native_response()
        if self._text is None and "text" in sent:
            self._text = GrownText()
        if self._ids is None and "output_ids" in sent:
            self._ids = Grown()
        self._rest = {name: value for name, value in sent.items() if name not in _GROWN}


def _is_queue_abort(output: Accumulator) -> bool:
    finish = output.finish_reason
    return finish is not None and finish.type == "abort" and not output.meta_info.get("prompt_tokens")


def _object(fields: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join([_json(name) + b":" + value for name, value in fields.items()]) + b"}"


def _json(value: Any) -> bytes:
    return as_compact_json(value).encode("utf-8")
