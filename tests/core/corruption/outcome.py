"""What came of a damaged body, held against the truth: ids, logprobs and text."""

from __future__ import annotations

from typing import Any, Literal

from ssefold import GenerateDecoder, StreamError, Update
from tests.core.corruption.streams import Stream

Outcome = Literal["exact", "refused", "wrong, refused later", "wrong and silent"]


def outcome(stream: Stream, body: bytes) -> Outcome:
    """Fold the body both ways, and compare what is held at its end with the truth."""
    held = _fold(body, fast_path=True)
    assert held == _fold(body, fast_path=False)
    found, error = held
    if error is not None:
        return "refused" if _is_prefix(stream, found) else "wrong, refused later"
    return "exact" if _is_whole(stream, found) else "wrong and silent"


# Per output: request id, ids, logprobs, text, whether it ended.
Found = dict[int, tuple[Any, tuple[int, ...], tuple[float | None, ...], str, bool]]


def _fold(body: bytes, *, fast_path: bool) -> tuple[Found, str | None]:
    decoder = GenerateDecoder(fast_path=fast_path)
    updates: list[Update] = []
    error = None
    try:
        updates += decoder.feed(body)
        decoder.close()
    except StreamError as failure:
        error = f"{type(failure).__name__}: {failure}"
    found = {
        index: (
            output.meta_info.get("id"),
            tuple(output.token_ids),
            tuple(output.logprobs),
            output.text(),
            output.finish_reason is not None,
        )
        for index, output in decoder.outputs.items()
    }
    return found, error


def _is_whole(stream: Stream, found: Found) -> bool:
    truth = {index: (held.token_ids, held.logprobs, held.text, True) for index, held in enumerate(stream.body.held)}
    return {index: output[1:] for index, output in found.items()} == truth


def _is_prefix(stream: Stream, found: Found) -> bool:
    """Each output is what a reader of a whole stream holds at some moment: of the request whose id it has."""
    moments = {
        (script.rid, held.token_ids, held.logprobs, held.text)
        for body in (stream.body, stream.other)
        for script_held in zip(*(sent.held for sent in body.sent))
        for held in script_held
        for script in [held.script]
    }
    return all(
        (not ids and not text) or (str(rid).partition("-")[0], ids, logprobs, text) in moments
        for rid, ids, logprobs, text, _ in found.values()
    )
