"""What came of a damaged body, held against the truth: ids, logprobs and text."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from ssefold import GenerateDecoder, StreamError
from tests.core.corruption.streams import Stream

EXACT = "the whole answer"
REFUSED = "refused, an exact prefix is kept"
LATER = "refused, but not before something wrong was given out"
SILENT = "wrong, and not detected"


class Output(NamedTuple):
    """What is held of one output."""

    rid: Any
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    text: str
    ended: bool


def outcome(stream: Stream, body: bytes) -> tuple[str, frozenset[str]]:
    """Fold the body both ways, and compare what is held at its end with the truth; the parts that are wrong."""
    found, error = _fold(body, fast_path=True)
    assert (found, error) == _fold(body, fast_path=False)
    if error is not None:
        return (REFUSED if _is_prefix(stream, found) else LATER), frozenset()
    wrong = _wrong_parts(stream, found)
    return (SILENT if wrong else EXACT), wrong


def _fold(body: bytes, *, fast_path: bool) -> tuple[dict[int, Output], str | None]:
    decoder = GenerateDecoder(fast_path=fast_path)
    with suppress(StreamError):
        decoder.feed(body)
        decoder.close()
    found = {
        index: Output(
            output.meta_info.get("id"),
            output.token_ids[:],  # type: ignore[arg-type]
            output.logprobs[:],  # type: ignore[arg-type]
            output.text(),
            output.finish_reason is not None,
        )
        for index, output in decoder.outputs.items()
    }
    return found, None if decoder.error is None else f"{type(decoder.error).__name__}: {decoder.error}"


def _wrong_parts(stream: Stream, found: dict[int, Output]) -> frozenset[str]:
    if found.keys() != set(range(len(stream.scripts))):
        return frozenset({"outputs"})
    wrong: set[str] = set()
    for index, held in enumerate(stream.body.held):
        output = found[index]
        parts = {
            "ids": output.ids == held.token_ids,
            "logprobs": output.logprobs == held.logprobs,
            "text": output.text == held.text,
            "end": output.ended,
        }
        wrong |= {part for part, is_right in parts.items() if not is_right}
    return frozenset(wrong)


def _is_prefix(stream: Stream, found: dict[int, Output]) -> bool:
    """Each output is what a reader of the undamaged body holds at some moment: of the request whose id it has."""
    moments = _moments(stream)
    return all(
        (not output.ids and not output.text)
        or (str(output.rid).partition("-")[0], output.ids, output.logprobs, output.text) in moments
        for output in found.values()
    )


@cache
def _moments(stream: Stream) -> frozenset[Any]:
    return frozenset(
        (held.script.rid, held.token_ids, held.logprobs, held.text)
        for body in (stream.body, stream.other)
        for sent in body.sent
        for held in sent.held
    )
