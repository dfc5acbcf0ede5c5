"""Updates applied by hand, the way a caller without an accumulator does it, and whole bodies decoded in any reads.

Everything here is the least that the public documentation lets a caller rely on; nothing looks inside the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ssefold import (
    Accumulator,
    FinishReason,
    GenerateDecoder,
    ReplayArray,
    Snapshot,
    StreamError,
    TopPReplay,
    Update,
)

ALIGNED = (
    "output_token_logprobs",
    "output_top_logprobs",
    "output_token_ids_logprobs",
    "output_token_sampling_mask",
    "output_token_sampling_logprobs",
)
"""Lists of ``meta_info`` that hold one entry per token and come with an update as their new part only."""


@dataclass
class Sample:
    """One output as a caller keeps it who applies updates as the docstring of ``Update`` says."""

    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float | None] = field(default_factory=list["float | None"])
    text: str = ""
    text_missing: bool = False
    finish_reason: FinishReason | None = None
    top_p: TopPReplay | None = None
    routed_experts: ReplayArray | None = None
    indexer_topk: ReplayArray | None = None
    aligned: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    def apply(self, update: Update) -> None:
        """Take one update; every claim it makes about its place must hold."""
        assert self.finish_reason is None or not (update.token_ids or update.text or update.finish_reason)
        if update.replace:
            self.token_ids, self.logprobs, self.text, self.top_p, self.aligned = [], [], "", None, {}
        assert update.start == len(self.token_ids)
        assert update.text_start <= len(self.text)
        assert update.text is not None or update.text_start == len(self.text)
        self.token_ids.extend(update.token_ids)
        self.logprobs.extend(update.logprobs)
        if update.text is not None:
            self.text = self.text[: update.text_start] + update.text
        elif update.token_ids:
            self.text_missing = True
        if update.finish_reason is not None:
            self.finish_reason = update.finish_reason
        if update.top_p is not None:
            self.top_p = update.top_p if self.top_p is None else self.top_p.concat(update.top_p)
        if update.routed_experts is not None:  # not "or": an array of no rows is one, and false
            self.routed_experts = update.routed_experts
        if update.indexer_topk is not None:
            self.indexer_topk = update.indexer_topk
        for name in ALIGNED:
            values = update.meta_info.get(name)
            if values is not None:
                self.aligned.setdefault(name, []).extend(values.copy())

    def agrees_with(self, output: Accumulator) -> None:
        """Assert that this is what the accumulator holds, bit for bit."""
        assert self.token_ids == list(output.token_ids)
        assert exact(self.logprobs) == exact(output.logprobs)
        # Where tokens came without their text, the rest of it is no text to give out.
        assert self.text == output.text() or (self.text_missing and output.text() == "")
        assert self.finish_reason == output.finish_reason
        assert self.top_p == output.top_p
        assert self.routed_experts == output.routed_experts
        assert self.indexer_topk == output.indexer_topk

    def lists_agree_with(self, output: Accumulator) -> None:
        """Assert the same of the lists beside the tokens."""
        meta = output.native_response()["meta_info"]
        for name in ALIGNED:
            mine, its = self.aligned.get(name) or [], meta.get(name) or []
            if name == "output_token_logprobs":  # one gateway writes ids as floats, and rows of two
                assert [row[:2] for row in mine] == [row[:2] for row in its]
            else:
                assert exact(mine) == exact(its), name


@dataclass
class Folded:
    """What came of one body.

    :ivar error: what ``feed`` or ``close`` raised, or None.
    """

    decoder: GenerateDecoder
    updates: list[Update]
    error: StreamError | None

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        return self.decoder.outputs

    @property
    def told(self) -> dict[str, Any]:
        """Everything that a caller can see, in a form that tells 0.0 from -0.0."""
        return {
            "updates": self.updates,
            "exact": [exact((update.logprobs, update.meta_info)) for update in self.updates],
            "outputs": {index: shown(output) for index, output in self.outputs.items()},
            "lanes": {index: dict(output.lanes) for index, output in self.outputs.items()},
            "error": None if self.error is None else (type(self.error), str(self.error)),
            "partial": {} if self.error is None else {i: shown(one) for i, one in self.error.partial.items()},
            "done": self.decoder.done,
            "skipped": self.decoder.skipped,
        }

    def samples(self) -> dict[int, Sample]:
        """The updates applied by hand."""
        samples: dict[int, Sample] = {}
        for update in self.updates:
            samples.setdefault(update.index, Sample()).apply(update)
        return samples

    def agrees_with_updates(self) -> None:
        """Assert that folding the updates by hand gives the outputs."""
        samples = self.samples()
        for index, output in self.outputs.items():
            samples.get(index, Sample()).agrees_with(output)
            samples.get(index, Sample()).lists_agree_with(output)
        assert set(samples) <= set(self.outputs)


def shown(output: Accumulator | Snapshot) -> dict[str, Any]:
    """What an output and its snapshot both show."""
    return {
        "index": output.index,
        "token_ids": tuple(output.token_ids),
        "logprobs": exact(output.logprobs),
        "text": output.text(),
        "finish_reason": output.finish_reason,
        "error": None if output.error is None else (str(output.error), output.error.message, output.error.code),
        "meta_info": exact(output.meta_info),
        "replay": (output.top_p, output.routed_experts, output.indexer_topk),
        "native": None if isinstance(output, Snapshot) else exact(output.native_response()),
    }


def fold(reads: Iterable[bytes | bytearray | memoryview], **options: Any) -> Folded:
    """Decode a body to its end, also after a failure, as a transport that drains the socket does.

    Both paths are taken, and must come to the same.
    """
    kept: list[bytes] = []

    def keeping() -> Iterator[bytes | bytearray | memoryview]:
        for read in reads:
            kept.append(bytes(read))  # the caller may use its buffer again
            yield read

    folded = _fold(keeping(), **options)
    if "fast_path" not in options:
        assert folded.told == _fold(kept, fast_path=False, **options).told
    return folded


def _fold(reads: Iterable[bytes | bytearray | memoryview], **options: Any) -> Folded:
    decoder = GenerateDecoder(**options)
    updates: list[Update] = []
    failure: StreamError | None = None
    for read in reads:
        try:
            updates += decoder.feed(read)
        except StreamError as error:
            assert failure is None or error is failure, "one failure, raised again and again"
            failure = error
        assert failure is None or decoder.error is failure
    try:
        decoder.close()
    except StreamError as error:
        assert failure is None or error is failure
        failure = error
    assert decoder.error is failure
    return Folded(decoder, updates, failure)


def exact(value: Any) -> str:
    """A form in which 0.0 and -0.0, 1 and 1.0 and True are different."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name!r}:{exact(item)}" for name, item in value.items()) + "}"
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return repr(value)
    return "[" + ",".join(map(exact, value)) + "]"


def cut(data: bytes, *places: int) -> list[bytes]:
    """``data`` in reads that end at these places."""
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def each_byte(data: bytes) -> list[bytes]:
    """One byte at a time."""
    return [data[at : at + 1] for at in range(len(data))]
