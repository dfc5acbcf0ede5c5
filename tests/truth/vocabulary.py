"""What each token id of the captured server decodes to, found out from the captures themselves.

Its tokenizer works on bytes: ids from 4 on are the 256 bytes in the order of the usual byte alphabet, and the merges
behind them are solved from the texts, chunk by chunk: wherever the ids between two moments hold one unknown merge, the
text between them says what it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from tests.truth.recorded import Recorded

_FIRST_BYTE_ID = 4
_FIRST_MERGE_ID = _FIRST_BYTE_ID + 256
_STOP_IDS = (2, 3)


def vocabulary(recorded: Iterable[Recorded]) -> dict[int, bytes]:
    """Token id to bytes, for every id that any of these bodies mentions as generated."""
    known = {_FIRST_BYTE_ID + place: bytes([byte]) for place, byte in enumerate(_byte_alphabet())}
    known.update(dict.fromkeys(_STOP_IDS, b""))
    equations = [equation for one in recorded for equation in _equations(one)]
    while True:
        before = len(known)
        for ids, text in equations:
            _solve(ids, text, known)
        if len(known) == before:
            break
    for ids, text in equations:
        _solve_words(ids, text, known)
    unknown = {token_id for ids, _ in equations for token_id in ids} - known.keys()
    if unknown:
        raise ValueError(f"the captures do not say what these ids decode to: {sorted(unknown)}")
    return known


def _byte_alphabet() -> list[int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return printable + [byte for byte in range(256) if byte not in printable]


def _equations(one: Recorded) -> Iterator[tuple[list[int], bytes]]:
    for truth in one.facts["ground_truth"]:
        ids: list[int] = truth["output_ids"]
        if truth["text"] is not None and "\N{REPLACEMENT CHARACTER}" not in truth["text"]:
            yield ids, truth["text"].encode()
        if not truth["on_the_wire"]:
            continue
        text, moments = "", [(0, 0)]
        for payload in one.payloads:
            meta = payload["meta_info"]
            if payload.get("index", 0) != truth["index"] or "text" not in payload or "prompt_tokens" not in meta:
                continue
            text = text + payload["text"] if one.name.startswith("inc") else payload["text"]
            count = meta["completion_tokens"]
            if meta["finish_reason"] is None and _is_plain(ids[count - 1]):
                moments.append((count, len(text)))
        for (start, text_start), (end, text_end) in itertools.pairwise(moments):
            yield ids[start:end], text[text_start:text_end].encode()


def _is_plain(token_id: int) -> bool:
    """Nothing is held back behind it: an ASCII byte or a merge."""
    return _FIRST_BYTE_ID <= token_id < _FIRST_BYTE_ID + 94 or token_id >= _FIRST_MERGE_ID


def _solve(ids: list[int], text: bytes, known: dict[int, bytes]) -> None:
    unknown = [place for place, token_id in enumerate(ids) if token_id not in known]
    if len(unknown) != 1:
        return
    before = b"".join(known[token_id] for token_id in ids[: unknown[0]])
    after = b"".join(known[token_id] for token_id in ids[unknown[0] + 1 :])
    if text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after):
        known[ids[unknown[0]]] = text[len(before) : len(text) - len(after)]


def _solve_words(ids: list[int], text: bytes, known: dict[int, bytes]) -> None:
    """What is still unknown stands side by side, in one response that came in one piece: words with their space."""
    pattern = b"".join(re.escape(known[token_id]) if token_id in known else rb"( [A-Za-z]+)" for token_id in ids)
    if match := re.fullmatch(pattern, text):
        known.update(zip((token_id for token_id in ids if token_id not in known), match.groups(), strict=True))
