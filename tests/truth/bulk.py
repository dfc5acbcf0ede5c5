"""Numbers that only have to differ: cheap to draw, since one seed gives them all."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssefold.transports.testing.script import Alternatives

MAX_ID = 200_000

_RARE_LOGPROBS = (0.0, -0.0, -1.1920928955078125e-07, -1e-05, float("nan"), float("-inf"), float("inf"), None)


class Bulk:
    """Numbers by the dozen from one drawn seed: what matters about them is that they differ.

    Seed 0, to which failures shrink, gives the plainest ones.
    """

    def __init__(self, seed: int) -> None:
        self._plain = seed == 0
        self._random = random.Random(seed)

    def logprob(self) -> float | None:
        """A float32 as the sampler gives it, widened; not finite now and then."""
        if self._plain:
            return -0.5
        if self._random.random() < 0.2:
            return self._random.choice(_RARE_LOGPROBS)
        return float32(-20 * self._random.random())

    def logprobs(self, count: int) -> tuple[float | None, ...]:
        """So many of them."""
        return tuple(self.logprob() for _ in range(count))

    def ids(self) -> tuple[int, ...]:
        """A few token ids."""
        return tuple(self._random.randrange(MAX_ID) for _ in range(1 if self._plain else self._random.randint(1, 4)))

    def alternatives(self, count: int, *, prompt: bool = False) -> tuple[Alternatives, ...]:
        """Two (logprob, id) pairs per position; of a prompt, some positions have none."""
        return tuple(
            None
            if prompt and not self._plain and self._random.random() < 0.3
            else tuple((self.logprob(), self._random.randrange(MAX_ID)) for _ in range(2))
            for _ in range(count)
        )


def float32(value: float) -> float:
    """The double that a float32 near this value widens to."""
    narrowed: tuple[float] = struct.unpack("<f", struct.pack("<f", value))
    return narrowed[0]
