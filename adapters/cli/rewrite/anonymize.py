"""``ssefold anonymize``: a recording without its text and ids, so that it can go into a bug report.

Every event is rewritten in its place: same keys in the same order, lists of the same lengths, text of the same
characters' sizes.  Afterwards the result is folded beside the original: lanes, counts, ends and anomalies must be the
same, or it is not written.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import IO, Any

import click

from ssefold import Accumulator, Update

from ..output import OUTPUT, NewFile, name_files
from ..reading import (
    SOURCE,
    BadRecordingError,
    Event,
    Folding,
    Reading,
    Reads,
    Recording,
    fold_options,
    fold_recording,
    read_sidecar,
    sidecar_lines,
    sidecar_of,
)
from ..report import error_line
from ..terminal import as_compact_json, as_json
from .mask import Masks, TextMask, masked_bytes, masked_numbers
from .repeats import Repeats

_EPILOG = """\b
Examples:
  ssefold anonymize recorded.sse -o shareable.sse
  ssefold anonymize recorded.sse.gz | ssefold check -
"""
_INDEX = re.compile(rb'"index":\s*(\d{1,9})\s*[,}]')
_INDEX_AT_END = 2000
#: ``meta_info`` keys whose lists are rows ``[logprob, id, text]``, or lists of such.
_ROWS = frozenset({
    "output_token_logprobs", "input_token_logprobs", "output_top_logprobs", "input_top_logprobs",
    "output_token_ids_logprobs", "input_token_ids_logprobs",
})  # fmt: skip
_IDS = frozenset({"output_ids", "prompt_token_ids", "output_token_sampling_mask", "input_ids"})
_PACKED_IDS = frozenset({"top_p_token_ids", "top_p_kept_token_ids"})
_NAMES = frozenset({"id", "rid", "weight_version", "version"})
_KEPT = frozenset({
    "type", "err_type", "finish_reason", "top_p_token_offsets", "top_p_kept_token_offsets", "routed_experts",
    "indexer_topk",
})  # fmt: skip


@click.command(epilog=_EPILOG, short_help="Replace text and ids, keep every shape.")
@click.argument("file", type=SOURCE)
@click.option("-o", "--output", type=OUTPUT, help="Where to write; default: standard output.")
@fold_options
@click.option("--json", "json_", is_flag=True, help="With -o: print a summary as JSON.")
@click.pass_context
def anonymize(ctx: click.Context, file: str, output: str | None, how: Folding, json_: bool) -> None:
    """Replace text, token ids, request ids, error messages and hidden states in FILE by random ones of the same shape.

    Logprobs, counters, replay arrays' routing and times stay.  The times that `ssefold record` kept are copied along.
    """
    if json_ and output is None:
        raise click.UsageError("--json needs -o: standard output carries the result")
    recording = Recording(file)
    with NewFile(output, [file]) as new:
        masked = _Masked(new.file)
        before = fold_recording(recording, how, steps=False, watch=masked.event)
        recording.check_whole()
        if not before.events:
            click.echo(error_line(before), err=True)
            ctx.exit(1)
        if before.native:
            masked.native(before.body)
        after = fold_recording(Recording(file, new.file), how, steps=False)
        if _shape(before) != _shape(after):
            raise BadRecordingError(f"{file}: its shape could not be kept, so nothing was written; please report this")
        new.commit()
    reads = None if output is None else read_sidecar(file, before.size)
    if output is not None and reads is not None:
        with NewFile(str(sidecar_of(output)), [file]) as new:
            new.file.write(sidecar_lines(_moved(reads, masked.places)))
            new.commit()
    name_files(output, None if output is None or reads is None else str(sidecar_of(output)))
    if json_:
        click.echo(as_json({"output": output, "bytes": after.size, "outputs": len(after.outputs)}))


def _shape(reading: Reading) -> Any:
    """What must not change."""
    outputs = {
        index: (
            len(output.token_ids), list(output.logprobs), len(output.text()), dict(output.lanes),
            None if output.finish_reason is None else output.finish_reason.type,
            None if output.top_p is None else output.top_p.offsets.tolist(), output.routed_experts,
        )
        for index, output in reading.outputs.items()
    }  # fmt: skip
    findings = [(one.code, one.index, one.count) for one in reading.findings]
    return outputs, findings, reading.done, reading.cut, type(reading.error), reading.events


def _moved(reads: Reads, places: list[tuple[int, int]]) -> Reads:
    """The reads of the result: the same cuts, as far as events have kept their sizes."""
    sizes: list[int] = []
    before = 0
    for end in accumulate(reads.sizes):
        at = bisect_right(places, end, key=itemgetter(0)) - 1
        old, new = places[at]
        limit = places[at + 1][1] if at + 1 < len(places) else new
        moved = min(new + end - old, limit)
        sizes.append(moved - before)
        before = moved
    kept = [(time, size) for time, size in zip(reads.times, sizes, strict=True) if size > 0]
    header = {key: value for key, value in reads.header.items() if key != "url"}
    return Reads(header, [time for time, _ in kept], [size for _, size in kept], reads.end)


class _Masked:
    """Writes each event without what it says.

    :ivar places: where events of the original end, in both.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.places = [(0, 0)]
        self._file = file
        self._masks = Masks()
        self._outputs: dict[int, tuple[TextMask, Repeats]] = {}

    def event(self, event: Event, _: Sequence[Update], outputs: Mapping[int, Accumulator]) -> None:
        """See :data:`~..reading.fold.Watch`."""
        raw = event.raw
        if event.data is None:  # no event, but its bytes may be private
            new = _unread(raw)
        elif event.data == b"[DONE]":
            new = raw
        else:
            data = self._data(event.data, outputs)
            if event.plain:
                new = b"data: " + data + b"\n\n"
            elif raw.count(event.data) == 1:
                at = raw.index(event.data)
                new = _unread(raw[:at]) + data + raw[at + len(event.data) :]
            else:
                new = b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
        self._file.write(new)
        self.places.append((event.end, self.places[-1][1] + len(new)))

    def native(self, body: bytes) -> None:
        """A response with ``stream: false``."""
        self._file.write(_native(body, self._masks))

    def _data(self, data: bytes, outputs: Mapping[int, Accumulator]) -> bytes:
        # A wrong guess costs time only: what is cut is compared byte for byte.
        guess = _INDEX.search(data, max(len(data) - _INDEX_AT_END, 0)) or _INDEX.search(data, 0, _INDEX_AT_END)
        text, repeats = self._of(int(guess[1]) if guess else 0)
        try:
            payload: Any = json.loads(repeats.cut(data), parse_constant=_refused)
        except (ValueError, RecursionError):
            return masked_bytes(data)
        if not isinstance(payload, dict):
            return masked_bytes(data)
        index = payload.get("index")
        index = index if isinstance(index, int) else 0
        text, _ = self._of(index)
        if index in outputs:
            text.grow(outputs[index].text())
        return repeats.filled(as_compact_json(_object(payload, self._masks, text.of)).encode("utf-8"))

    def _of(self, index: int) -> tuple[TextMask, Repeats]:
        if index not in self._outputs:
            self._outputs[index] = TextMask(self._masks), Repeats(_ROWS | _IDS)
        return self._outputs[index]


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _unread(data: bytes) -> bytes:
    """Lines that are not the data: names of fields and event types stay, comments and other values go."""
    return b"".join(map(_unread_line, data.splitlines(keepends=True)))


def _unread_line(line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    field = name.removeprefix(b"\xef\xbb\xbf").strip()
    if field == b"event":
        return line
    return name + colon + masked_bytes(value) if field in (b"", b"data", b"id", b"retry") else masked_bytes(line)


def _native(body: bytes, masks: Masks) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return masked_bytes(body)
    listed = isinstance(value, list)
    responses = [
        _object(one, masks, masks.text) if isinstance(one, dict) else one for one in (value if listed else [value])
    ]
    return (as_compact_json(responses if listed else responses[0]) + "\n").encode("utf-8")


def _object(value: dict[str, Any], masks: Masks, text: Callable[[str], str]) -> dict[str, Any]:
    return {key: _field(key, one, masks, text) for key, one in value.items()}


def _field(key: str, value: Any, masks: Masks, text: Callable[[str], str]) -> Any:
    if value is None or isinstance(value, bool) or (key in _KEPT and not isinstance(value, dict)):
        return value
    if key in _ROWS:
        return _rows(value, masks)
    if key in _IDS or key.endswith("_idx_flat"):
        return _ids(value, masks)
    if key in _PACKED_IDS:
        return _packed(value, masks)
    if key == "hidden_states":
        return masked_numbers(value)
    if key == "matched":
        return value if value == "NaN happened" else masks.name(value) if isinstance(value, str) else _ids(value, masks)
    if isinstance(value, str):
        return text(value) if key == "text" else masks.name(value) if key in _NAMES else masks.text(value)
    if isinstance(value, dict):
        return {name: _field(name, one, masks, masks.text) for name, one in value.items()}
    if isinstance(value, list):
        return [_field("", one, masks, masks.text) for one in value]
    return value


def _rows(value: Any, masks: Masks) -> Any:
    if isinstance(value, list) and len(value) in (2, 3) and isinstance(value[1], (int, float)):
        token = type(value[1])(masks.token_id(int(value[1])))
        return [value[0], token, *(masks.name(one) if isinstance(one, str) else one for one in value[2:])]
    return [_rows(one, masks) for one in value] if isinstance(value, list) else value


def _ids(value: Any, masks: Masks) -> Any:
    if isinstance(value, list):
        return [_ids(one, masks) for one in value]
    return masks.token_id(value) if type(value) is int and value >= 0 else value


def _packed(value: Any, masks: Masks) -> Any:
    if not isinstance(value, str):
        return _ids(value, masks)
    try:
        raw = base64.b64decode(value, validate=True)
    except binascii.Error:
        return value
    if len(raw) % 4:
        return value
    ids = struct.unpack(f"<{len(raw) // 4}i", raw)
    packed = b"".join((masks.token_id(one) if one >= 0 else one).to_bytes(4, "little", signed=True) for one in ids)
    return base64.b64encode(packed).decode("ascii")
