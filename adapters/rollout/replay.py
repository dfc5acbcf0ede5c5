"""Replay arrays of a whole rollout, put together from those of its calls.

Each call describes only what it sampled itself: top-p rows of its own tokens, routing from ``routed_experts_start_len``
on.  Here they are joined in order.  A token without a row must have loss mask 0; otherwise it is an error, because a
row that is off by one is a wrong gradient.  Knows nothing of calls and requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ssefold import ReplayArray, ReplayError, ReplayRows, TopPReplay

_INT32_MAX = 2**31 - 1


class TopPRows:
    """Top-p rows of the response tokens, as far as they came: one row per token, int32 ids and offsets."""

    __slots__ = ("_ids", "_offsets")

    def __init__(self) -> None:
        self._ids = array("i")
        self._offsets = array("i", [0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def gap(self, mask: Sequence[int], start: int) -> int | None:
        """The first token before ``start`` that was sampled and has no row; None if there is none."""
        return next((at for at in range(len(self), start) if mask[at]), None)

    def check_room(self, replay: TopPReplay) -> None:
        """Offsets are int32.

        :raises ReplayError: they cannot count the ids of one more call.
        """
        if len(self._ids) + len(replay.token_ids) > _INT32_MAX:
            raise ReplayError(
                f"{len(self._ids)} + {len(replay.token_ids)} kept token ids are more than int32 offsets can count"
            )

    def put(self, replay: TopPReplay, start: int) -> None:
        """Set the rows of tokens from ``start`` on; what stood there goes, and a gap before it becomes empty rows."""
        self.cut(start)
        self._pad(start)
        base = len(self._ids)
        self._ids.frombytes(replay.token_ids.tobytes())
        self._offsets.extend(base + bound for bound in replay.offsets[1:])

    def cut(self, rows: int) -> None:
        """Keep the first ``rows`` rows at most."""
        if rows < len(self):
            del self._offsets[rows + 1 :]
            del self._ids[self._offsets[-1] :]

    def value(self, mask: Sequence[int]) -> TopPReplay | None:
        """The rows; None if none came.  Tokens at the end that were not sampled get empty rows."""
        if len(self) == 0:
            return None
        replay = TopPReplay(self._ids, self._offsets)
        end = len(mask)
        return replay.pad(end - len(self)) if self.gap(mask, end) is None else replay

    def arrays(self) -> tuple[array[int], array[int]]:
        """Copies of ids and offsets."""
        return self._ids[:], self._offsets[:]

    @classmethod
    def of(cls, replay: TopPReplay) -> TopPRows:
        """Rows that were taken out before."""
        rows = cls()
        rows.put(replay, 0)
        return rows

    def _pad(self, rows: int) -> None:
        self._offsets.extend([len(self._ids)] * (rows - len(self)))


def joined_routing(
    known: ReplayRows | None, new: ReplayArray, num_layers: int, top_k: int, *, total_tokens: int, start_len: int
) -> ReplayRows:
    """Routing of a whole sequence: ``known`` rows as far as ``new`` does not reach, then ``new``.

    :param total_tokens: tokens of prompt and response; all but the last have been fed, and have a row.
    :param start_len: the ``routed_experts_start_len`` that was asked for.
    :raises ReplayError: the array has neither the cropped nor the full size, or rows between are missing.
    """
    placed = new.reshape(num_layers, top_k, total_tokens=total_tokens, start_len=start_len)
    have = 0 if known is None else known.rows
    if placed.start > have:
        raise ReplayError(
            f"routed_experts starts at row {placed.start} and only {have} rows are known: ask for"
            f" routed_experts_start_len={have} at most (next_payload does)"
        )
    values = placed.values
    if known is not None and placed.start:
        row = num_layers * top_k
        values = memoryview(known.values[: placed.start * row].tobytes() + values.tobytes()).cast("i")
    return ReplayRows(values, 0, (placed.start + placed.rows, num_layers, top_k))
