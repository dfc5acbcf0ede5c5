"""Which server wrote a body: a range of versions and its start flags, from what only some of them send.

Evidence of presence raises the lower bound, evidence of absence lowers the upper one; the facts are those of
:mod:`ssefold.transports.testing.profiles`.  A guess for people, on which nothing else rests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ssefold import Accumulator

from ..reading import Reading

Version: TypeAlias = "tuple[int, int, int]"

_OLDEST: Version = (0, 4, 6)
_NEWEST: Version = (0, 5, 23)

#: ``meta_info`` key -> the first version that has it.
_SINCE: tuple[tuple[str, Version], ...] = (
    ("weight_versions", (0, 5, 19)),
    ("num_retractions", (0, 5, 12)),
    ("output_token_logprobs_length", (0, 5, 10)),
    ("reasoning_tokens", (0, 5, 10)),
    ("cached_tokens_details", (0, 5, 9)),
    ("response_sent_to_client_ts", (0, 5, 6)),
    ("total_retractions", (0, 5, 5)),
    ("response_sent_ts", (0, 5, 5)),
    ("weight_version", (0, 5, 1)),
)
#: Keys of which one is always there, and the last version that had none of them.
_BEFORE: tuple[tuple[tuple[str, ...], Version], ...] = (
    (("weight_version",), (0, 4, 10)),
    (("num_retractions", "total_retractions"), (0, 5, 4)),
    (("response_sent_to_client_ts",), (0, 5, 5)),
    (("cached_tokens_details",), (0, 5, 8)),
    (("reasoning_tokens",), (0, 5, 9)),
    (("num_retractions",), (0, 5, 11)),
)


@dataclass(frozen=True)
class Guess:
    """Who may have written it.

    :ivar server: in words.
    :ivar oldest: and ``newest``: versions of SGLang, where it was SGLang itself.
    :ivar incremental: ``--incremental-streaming-output`` (``--stream-output`` before 0.5.10); None: cannot be told.
    :ivar tokens_only: ``--skip-tokenizer-init``.
    """

    server: str
    oldest: Version | None = None
    newest: Version | None = None
    incremental: bool | None = None
    tokens_only: bool = False

    def words(self) -> str:
        """For a line of a report."""
        parts = [self.server]
        if self.oldest is not None and self.newest is not None:
            first, last = (".".join(map(str, version)) for version in (self.oldest, self.newest))
            parts.append(first if first == last else f"{first} to {last}")
        flags: list[str] = []
        if self.incremental:
            old = self.newest is not None and self.newest < (0, 5, 10)
            flags.append("--stream-output" if old else "--incremental-streaming-output")
        if self.tokens_only:
            flags.append("--skip-tokenizer-init")
        if flags:
            parts.append("with " + " and ".join(flags))
        elif self.incremental is False:
            parts.append("without streaming flags")
        return " ".join(parts)


def guess_profile(reading: Reading) -> Guess | None:
    """The guess; None where nothing tells."""
    ordinary = [output for output in reading.outputs.values() if output.meta_info.get("prompt_tokens")]
    if not ordinary:
        return None
    output = max(ordinary, key=lambda one: (one.finish_reason is not None, len(one.token_ids)))
    meta = output.meta_info
    finish = output.finish_reason
    if finish is not None and isinstance(finish.raw, str):
        return Guess("sgl-model-gateway over gRPC")
    if "cached_tokens" not in meta:
        return Guess("SGLang's Rust server, or a gateway that renders the JSON itself")
    oldest, newest = _bounds(meta, finished=finish is not None)
    lanes = output.lanes
    text, ids, rows = lanes["text"], lanes["output_ids"], lanes["logprobs"]
    sent = output.native_response()
    tokens_only = "text" not in sent and bool(output.token_ids)
    if "output_ids" in sent and not tokens_only:
        oldest = max(oldest, (0, 5, 1))
    if text == "incremental":
        oldest = max(oldest, (0, 5, 10))
    if rows == "incremental":
        oldest = max(oldest, (0, 5, 11))
    elif rows == "cumulative" and text == "incremental":
        newest = min(newest, (0, 5, 10))
    elif rows == "cumulative" and ids == "incremental" and not tokens_only:
        newest = min(newest, (0, 5, 9))
    if any(one.code == "SG102" for one in reading.findings):
        newest = min(newest, (0, 5, 4))
    incremental = _is_incremental(output)
    if incremental and not tokens_only and newest < (0, 5, 6):
        incremental = False  # ids were deltas by default
    elif incremental and text != "incremental" and rows != "incremental" and oldest < (0, 5, 6) and not tokens_only:
        incremental = None
    if oldest > newest:
        return Guess("a gateway: no version of SGLang sends these keys together")
    server = "SGLang" if output.top_p is None else "slime's image of SGLang"
    return Guess(server, oldest, newest, incremental, tokens_only)


def _bounds(meta: Mapping[str, Any], *, finished: bool) -> tuple[Version, Version]:
    oldest = max((version for key, version in _SINCE if key in meta), default=_OLDEST)
    newest = min((version for keys, version in _BEFORE if not any(key in meta for key in keys)), default=_NEWEST)
    if "response_sent_ts" in meta:
        newest = min(newest, (0, 5, 5))
    if finished and "weight_versions" not in meta:
        newest = min(newest, (0, 5, 18))
    return oldest, newest


def _is_incremental(output: Accumulator) -> bool | None:
    known = {lane for name in ("text", "output_ids", "logprobs") if (lane := output.lanes[name]) is not None}
    return None if not known else "incremental" in known
