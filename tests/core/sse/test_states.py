"""Any order of feed, close and reset: the parser does what its documentation says, or says why not."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ssefold import EventTooLargeError, SSEParser

from .reference import Outcome, first_excess, interpret
from .strategies import short_streams

LIMIT = 12


class ParserMachine(RuleBasedStateMachine):
    """The parser beside a model that keeps all bytes since the last reset and interprets them anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.parser = SSEParser(last_event_id="seed", max_event_size=LIMIT)
        self.last_event_id = "seed"
        self.reconnection_time: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.arrived = b""
        self.given_out = 0
        self.state = "open"
        self.seed = self.last_event_id

    def _outcome(self, stream: bytes) -> Outcome:
        outcome = interpret(stream, self.seed)
        self.last_event_id = outcome.last_event_id
        if outcome.reconnection_time is not None:
            self.reconnection_time = outcome.reconnection_time
        return outcome

    @precondition(lambda self: self.state == "open")
    @rule(piece=short_streams | st.binary(max_size=3))
    def feed(self, piece: bytes) -> None:
        self.arrived += piece
        excess = first_excess(self.arrived, LIMIT)
        outcome = self._outcome(self.arrived if excess is None else self.arrived[: excess - 1])
        new = outcome.events[self.given_out :]
        self.given_out = len(outcome.events)
        if excess is not None:
            self.state = "too large"
            if not new:
                with pytest.raises(EventTooLargeError, match=f"max_event_size={LIMIT} "):
                    self.parser.feed(piece)
                return
        assert [(event.event, event.data, event.id) for event in self.parser.feed(piece)] == new

    @precondition(lambda self: self.state == "open")
    @rule()
    def close(self) -> None:
        assert self.parser.close() == self._outcome(self.arrived).unfinished
        self.state = "closed"

    @precondition(lambda self: self.state == "closed")
    @rule(piece=st.binary(max_size=3))
    def refuse_after_close(self, piece: bytes) -> None:
        with pytest.raises(ValueError, match=r"after close\(\)"):
            self.parser.feed(piece)
        assert self.parser.close() is False

    @precondition(lambda self: self.state == "too large")
    @rule(piece=st.binary(max_size=3))
    def refuse_after_too_large(self, piece: bytes) -> None:
        with pytest.raises(EventTooLargeError, match=f"max_event_size={LIMIT} "):
            self.parser.feed(piece)
        with pytest.raises(EventTooLargeError, match=f"max_event_size={LIMIT} "):
            self.parser.close()

    @rule(wrong=st.sampled_from(["data: x\n\n", None, 7, [1]]))
    def refuse_another_type(self, wrong: object) -> None:
        with pytest.raises(TypeError, match=r"feed\(\) takes bytes, bytearray or memoryview"):
            self.parser.feed(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    @rule()
    def reset(self) -> None:
        self.parser.reset()
        self._begin()

    @invariant()
    def source_is_known(self) -> None:
        assert self.parser.last_event_id == self.last_event_id
        assert self.parser.reconnection_time == self.reconnection_time


TestParserMachine = ParserMachine.TestCase
TestParserMachine.settings = settings(stateful_step_count=15)
