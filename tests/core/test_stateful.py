"""The decoder as a machine: reads of any size, snapshots, restored twins, failures and the end, in any order."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ssefold import (
    Accumulator,
    GenerateDecoder,
    IncompleteStreamError,
    ServerError,
    Snapshot,
    StreamError,
    Update,
)
from ssefold.transports.testing import Body
from tests.core.by_hand import Sample, shown
from tests.core.fast.test_both_paths import SETTLED
from tests.core.follow import agrees
from tests.core.mutations import event, some_cases


class Decoding(RuleBasedStateMachine):
    """One body, delivered by the rules; beside it the truth, samples made of updates, and twins made of snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = GenerateDecoder()
        self.body: Body
        self.fed = 0
        self.extra = 0
        self.samples: dict[int, Sample] = {}
        self.kept: list[tuple[Snapshot, dict[str, Any]]] = []
        self.twins: dict[int, Accumulator] = {}
        self.failure: StreamError | None = None
        self.closed = False

    @initialize(
        case=some_cases("plain", "scored", "rich", "slow", "stop", "queued", "batch-1", "batch-2", "unfinished")
        | some_cases("finite", profiles=SETTLED),
        fast_path=st.booleans(),
        patience=st.sampled_from((0, 500, 10**9)),
    )
    def start(self, case: Any, fast_path: bool, patience: int) -> None:
        self.body = case.body
        # So many bytes are read before anything may end the stream.
        self.patience = min(patience, len(self.body.data))
        self.decoder = GenerateDecoder(fast_path=fast_path)

    # ---- rules

    def _can_read(self) -> bool:
        return not self.closed and self.failure is None

    @precondition(_can_read)
    @rule(size=st.integers(0, 100) | st.integers(0, 6000))
    def read(self, size: int) -> None:
        self._feed(self.body.data[self.fed : self.fed + size])
        self.fed = min(self.fed + size, len(self.body.data))

    @precondition(_can_read)
    @rule(count=st.integers(1, 12))
    def read_events(self, count: int) -> None:
        """To the end of so many more events, in one read."""
        whole = self.body.events_in(self.fed)
        end = sum(map(len, self.body.events[: whole + count]))
        self._feed(self.body.data[self.fed : end])
        self.fed = max(self.fed, end)

    @precondition(_can_read)
    @rule()
    def comment(self) -> None:
        if self.body.events_in(self.fed) == self.body.events_in(self.fed + 1) and self._is_between():
            self._feed(b":\n\n")

    @precondition(lambda self: self._can_read() and self.fed >= self.patience)
    @rule(what=st.sampled_from((b"nonsense", b'{"error":{"message":"dead"}}', b"[]")))
    def break_down(self, what: bytes) -> None:
        """The stream fails between two events."""
        if self._is_between():
            before = {index: shown(output) for index, output in self.decoder.outputs.items()}
            with pytest.raises(StreamError) as caught:
                self.decoder.feed(event(what))
            self.failure = caught.value
            assert {index: shown(output) for index, output in self.decoder.outputs.items()} == before

    @precondition(lambda self: self.failure is not None)
    @rule(size=st.integers(0, 600))
    def read_on(self, size: int) -> None:
        """A failure is for ever, and nothing behind it is folded."""
        before = {index: shown(output) for index, output in self.decoder.outputs.items()}
        with pytest.raises((ValueError, StreamError)) as caught:
            self.decoder.feed(self.body.data[self.fed : self.fed + size])
        assert {index: shown(output) for index, output in self.decoder.outputs.items()} == before
        assert self.decoder.error is self.failure
        assert caught.value is self.failure or self.closed

    @rule()
    def snapshot(self) -> None:
        for snapshot in self.decoder.snapshots().values():
            self.kept.append((snapshot, shown(snapshot)))

    @rule(through_pickle=st.booleans())
    def restore(self, through_pickle: bool) -> None:
        """Twins of all outputs go on from here with the same chunks."""
        for index, output in self.decoder.outputs.items():
            snapshot = output.snapshot()
            raw = pickle.dumps(snapshot) if through_pickle else snapshot.to_bytes()
            copy = pickle.loads(raw) if through_pickle else Snapshot.from_bytes(raw)
            assert copy == snapshot
            self.twins[index] = Accumulator.restore(copy)

    @precondition(lambda self: hasattr(self, "body") and self.fed >= self.patience)
    @rule()
    def close(self) -> None:
        complete = self._is_complete()
        try:
            self.decoder.close()
        except StreamError as error:
            assert error is self.failure or self.failure is None
            assert isinstance(error, (IncompleteStreamError, ServerError)) or self.failure is not None
            assert not complete or self.failure is not None
            self.failure = error
        else:
            assert complete
            assert self.failure is None
        self.closed = True
        with pytest.raises((ValueError, StreamError)):
            self.decoder.feed(b"")

    # ---- what holds always

    @invariant()
    def outputs_are_the_truth(self) -> None:
        if not hasattr(self, "body"):
            return
        arrived = self.body.held_after(self.body.events_in(self.fed))
        for index, held in enumerate(arrived):
            if index in self.decoder.outputs:
                agrees(self.decoder.outputs[index], held)
            else:
                assert not held.tokens

    @invariant()
    def updates_and_twins_are_the_outputs(self) -> None:
        for index, output in self.decoder.outputs.items():
            self.samples.get(index, Sample()).agrees_with(output)
            if index in self.twins:
                assert shown(self.twins[index]) == shown(output)

    @invariant()
    def snapshots_stay_as_they_were(self) -> None:
        for snapshot, was in self.kept[-3:]:
            assert shown(snapshot) == was

    # ---- helpers

    def _feed(self, data: bytes) -> None:
        try:
            updates = self.decoder.feed(data)
        except StreamError as error:
            assert isinstance(error, ServerError)
            assert self.body.error
            self.failure = error
            return
        for update in updates:
            self._apply(update)
        if self.decoder.error is not None:
            assert updates
            self.failure = self.decoder.error

    def _apply(self, update: Update) -> None:
        self.samples.setdefault(update.index, Sample()).apply(update)
        twin = self.twins.get(update.index)
        if twin is not None:
            # The chunk that made this update: the twin's own count says which it is.
            mine = [payload for payload in self.body.payloads if payload.get("index", 0) == update.index]
            given = self._given.get(update.index, 0)
            assert twin.add(mine[given]) == update
        self._given[update.index] = self._given.get(update.index, 0) + 1

    @property
    def _given(self) -> dict[int, int]:
        if not hasattr(self, "_counts"):
            self._counts: dict[int, int] = {}
        return self._counts

    def _is_between(self) -> bool:
        return self.fed == sum(map(len, self.body.events[: self.body.events_in(self.fed)]))

    def _is_complete(self) -> bool:
        arrived = [
            held
            for index, held in enumerate(self.body.held_after(self.body.events_in(self.fed)))
            if index in self.decoder.outputs
        ]
        return bool(arrived) and all(held.complete and not held.error for held in arrived)


TestDecoding = Decoding.TestCase
TestDecoding.settings = settings(max_examples=40, stateful_step_count=25)
