"""When things happen inside the server: what the scheduler sends, when the HTTP side takes it, when it is written.

A :class:`Schedule` is a list of moments.  Between the moment a chunk is taken and the moment it is written the
scheduler may go on (in a batch other outputs are written first), and between two takes it may send several times (a
slow reader).  This module knows nothing of contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Moment: TypeAlias = "tuple[Literal['send', 'take', 'write'], int]"
"""What happens, and to which output."""


@dataclass(frozen=True)
class Schedule:
    """One run of the server.

    :ivar sends: per output, how many new tokens each scheduler output carries (0 is legal).  The last one carries the
        finish reason; an output that ends as ``queued`` has its abort message after all of them.
    :ivar moments: ``send`` moments per output: one for each of ``sends``, and one more for a queue abort.
    """

    sends: tuple[tuple[int, ...], ...]
    moments: tuple[Moment, ...]


def eager(sends: Sequence[Sequence[int]], aborts: Iterable[int] = ()) -> Schedule:
    """A reader that keeps pace: every chunk is written before the next is made; outputs take turns.

    :param aborts: the outputs that end by a queue abort.
    """
    return choose(sends, (), aborts)


def late(sends: Sequence[Sequence[int]], aborts: Iterable[int] = (), *, after: int = 0) -> Schedule:
    """The slowest reader: after the first so many sends of each output, kept pace with, it comes when all is over.

    :param aborts: the outputs that end by a queue abort.
    """
    aborting = frozenset(aborts)
    moments: list[Moment] = []
    for output, part in enumerate(sends):
        for step in range(len(part) + (output in aborting)):
            moments.append(("send", output))
            if step < after:
                moments.extend((("take", output), ("write", output)))
        if len(part) + (output in aborting) > after:
            moments.extend((("take", output), ("write", output)))
    return Schedule(tuple(tuple(part) for part in sends), tuple(moments))


def choose(
    sends: Sequence[Sequence[int]], choices: Iterable[int], aborts: Iterable[int] = (), *, live: bool = True
) -> Schedule:
    """The schedule that a sequence of choices among the possible moments gives; after the last choice, the eager one.

    At every step the possible moments are listed, those that finish what is under way first, and the choice (modulo
    their number) picks one.

    :param aborts: the outputs that end by a queue abort.
    :param live: let the scheduler go on between take and write, as it can in a batch; a request of its own is written
        as soon as it is taken.
    """
    aborting = frozenset(aborts)
    remaining = [len(part) + (output in aborting) for output, part in enumerate(sends)]
    waiting = [0] * len(sends)
    taken = [False] * len(sends)
    turn = 0
    moments: list[Moment] = []
    chosen: Iterator[int] = iter(choices)
    while True:
        possible: list[Moment] = [("write", output) for output, is_taken in enumerate(taken) if is_taken]
        if live or not possible:
            possible.extend(("take", i) for i, count in enumerate(waiting) if count and not taken[i])
            order = [*range(turn, len(sends)), *range(turn)]
            possible.extend(("send", i) for i in order if remaining[i])
        if not possible:
            break
        moment = possible[next(chosen, 0) % len(possible)]
        what, output = moment
        moments.append(moment)
        if what == "send":
            remaining[output] -= 1
            waiting[output] += 1
            turn = (output + 1) % len(sends)
        elif what == "take":
            waiting[output] = 0
            taken[output] = True
        else:
            taken[output] = False
    return Schedule(tuple(tuple(part) for part in sends), tuple(moments))


def interval_sends(tokens: int, interval: int, *, first_at_once: bool = True) -> tuple[int, ...]:
    """How a server with this ``stream_interval`` sends so many tokens that come one by one.

    Up to 0.5.21 a chunk leaves when the number of tokens is 1 modulo the interval, later at the first token and
    whenever ``interval`` are unsent: the same numbers (``output_streamer.accept``).

    :param first_at_once: the first token is sent alone.
    """
    if interval <= 1:
        return (1,) * tokens or (0,)
    sends: list[int] = []
    left = tokens
    if first_at_once and left > 1:
        sends.append(1)
        left -= 1
    while left > interval:
        sends.append(interval)
        left -= interval
    return (*sends, left)
