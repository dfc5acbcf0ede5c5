"""``ssefold anonymize``: a recording without its text and ids, so that it can go into a bug report.

Every event is rewritten in its place: same keys in the same order, lists of the same lengths, text of the same
characters' sizes.  Afterwards the result is folded beside the original: lanes, counts, ends and anomalies must be the
same, or it is not written.
"""

from __future__ import annotations

import base64
import json
import sys
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from ssefold import GenerateDecoder, PayloadError, StreamError
from ssefold.fold.payload import parse_payload
from ssefold.replay import decode_int32

from .events import events_of
from .fold import Reading, fold_recording
from .mask import Masks, TextMask, masked_bytes, masked_numbers
from .read import SOURCE, BadRecordingError, Recording, read_whole_recording
from .text import as_compact_json, as_json
from .times import Reads, read_sidecar, write_sidecar

_EPILOG = """\b
Examples:
  ssefold anonymize recorded.sse -o shareable.sse
  ssefold anonymize recorded.sse.gz | ssefold check -
"""
_NO_LIMIT = 2**62
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
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write; default: standard output.")
@click.option("--json", "json_", is_flag=True, help="With -o: print a summary as JSON.")
def anonymize(file: str, output: str | None, json_: bool) -> None:
    """Replace text, token ids, request ids, error messages and hidden states in FILE by random ones of the same shape.

    Logprobs, counters, replay arrays' routing and times stay.  The times that `ssefold record` kept are copied along.
    """
    if json_ and output is None:
        raise click.UsageError("--json needs -o: standard output carries the result")
    recording = read_whole_recording(file)
    result, places = _anonymous(recording)
    before = fold_recording(recording)
    after = fold_recording(Recording(recording.name, result))
    if _shape(before) != _shape(after):
        raise BadRecordingError(f"{file}: its shape could not be kept, so nothing was written; please report this")
    if output is None:
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    else:
        Path(output).write_bytes(result)
        reads = read_sidecar(file, before.size)
        if reads is not None:
            write_sidecar(output, _moved(reads, places))
    if json_:
        click.echo(as_json({"output": output, "bytes": len(result), "outputs": len(after.outputs)}))


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
    return outputs, findings, reading.done, reading.cut, type(reading.error), len(reading.steps)


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


def _anonymous(recording: Recording) -> tuple[bytes, list[tuple[int, int]]]:
    """The result, and where events of the original begin in both."""
    masks = Masks()
    if recording.is_native:
        return _native(recording.data, masks), [(0, 0)]
    body = recording.data
    decoder = GenerateDecoder(max_event_size=_NO_LIMIT)
    texts: dict[int, TextMask] = {}
    parts: list[bytes] = []
    places = [(0, 0)]
    for event in events_of(body):
        raw = body[event.start : event.end]
        with suppress(StreamError):  # what follows a failure is rewritten without help from folding
            decoder.feed(raw)
        parts.append(_event(raw, event.data, decoder, texts, masks))
        places.append((event.end, places[-1][1] + len(parts[-1])))
    # What is left is no event: nobody reads it, but its bytes are somebody's.
    parts.append(_unread(body[places[-1][0] :]))
    places.append((len(body), places[-1][1] + len(parts[-1])))
    return b"".join(parts), places


def _event(raw: bytes, data: bytes, decoder: GenerateDecoder, texts: dict[int, TextMask], masks: Masks) -> bytes:
    if data == b"[DONE]":
        return raw
    try:
        payload = parse_payload(data)
    except PayloadError:
        new = masked_bytes(data)
    else:
        index = payload.get("index") if isinstance(payload.get("index"), int) else 0
        text = texts.setdefault(index or 0, TextMask(masks))
        output = decoder.outputs.get(index or 0)
        if output is not None:
            text.grow(output.text())
        new = as_compact_json(_object(payload, masks, text.of)).encode("utf-8")
    if raw.count(data) == 1:
        at = raw.index(data)
        return _unread(raw[:at]) + new + raw[at + len(data) :]
    return b"data: " + new.replace(b"\n", b"\ndata: ") + b"\n\n"


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
        ids = decode_int32(value, field="ids")
    except StreamError:
        return value
    if ids is None:
        return value
    packed = b"".join((masks.token_id(one) if one >= 0 else one).to_bytes(4, "little", signed=True) for one in ids)
    return base64.b64encode(packed).decode("ascii")
