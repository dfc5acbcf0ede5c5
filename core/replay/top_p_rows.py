"""Top-p rows of one output as they arrive: with every chunk or once at the end, joined when they are read.

Knows how rows grow, and nothing of what they mean (``arrays.py``) or of when they come.
"""

from __future__ import annotations

from array import array

from ..errors import ReplayError
from .arrays import TopPReplay
from .int32 import INT32_MAX


class TopPRows:
    """Parts in order.  Joining them with every chunk would copy all rows for each token."""

    __slots__ = ("_parts", "rows", "size")

    def __init__(self, whole: TopPReplay | None = None) -> None:
        self._parts: list[TopPReplay] = [] if whole is None else [whole]
        #: Number of tokens, and of kept ids in all.
        self.rows: int = 0 if whole is None else len(whole)
        self.size: int = 0 if whole is None else len(whole.token_ids)

    def check(self, part: TopPReplay) -> None:
        """Ask whether ``part`` can be appended.

        :raises ReplayError: more token ids than an int32 offset can count.
        """
        if self.size + len(part.token_ids) > INT32_MAX:
            raise ReplayError(
                f"{self.size} + {len(part.token_ids)} kept token ids are more than int32 offsets can count "
                f"({INT32_MAX}): ask for fewer tokens per call"
            )

    def append(self, part: TopPReplay) -> None:
        """Take rows that were checked."""
        if len(part) or not self._parts:
            self._parts.append(part)
        self.rows += len(part)
        self.size += len(part.token_ids)

    def value(self) -> TopPReplay | None:
        """All rows; None if none came."""
        parts = self._parts
        if len(parts) > 1:
            ids, offsets = array("i"), array("i", [0])
            for part in parts:
                base = len(ids)
                ids.frombytes(part.token_ids.tobytes())
                offsets.extend([base + bound for bound in part.offsets[1:]])
            parts[:] = [TopPReplay(ids, offsets)]
        return parts[0] if parts else None

    def copy(self) -> TopPRows:
        """A copy; parts are immutable."""
        return TopPRows(self.value())
