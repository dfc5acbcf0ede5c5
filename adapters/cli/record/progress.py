"""Progress display of ``ssefold record``.

On standard error, since standard output may carry the bytes.  Knows counts and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..terminal import plural


@dataclass
class Progress:
    """What has come so far; ``size`` in bytes, times in seconds since the request."""

    size: int = 0
    reads: int = 0
    tokens: int = 0
    elapsed: float = 0.0
    ttft: float | None = None

    def received(self, data: bytes, now: float, tokens: int) -> None:
        """A read; ``tokens`` is what has come in all."""
        self.size += len(data)
        self.reads += 1
        self.elapsed = now
        self.tokens = tokens
        if tokens and self.ttft is None:
            self.ttft = now

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "bytes": self.size,
            "reads": self.reads,
            "tokens": self.tokens,
            "elapsed": self.elapsed,
            "ttft": self.ttft,
        }

    def __rich__(self) -> Text:
        rate = self.tokens / self.elapsed if self.elapsed else 0.0
        return Text(
            f"{plural(self.tokens, 'token')}, {rate:,.0f} tokens/s, {plural(self.size, 'byte')}, "
            f"{plural(self.reads, 'read')}, {self.elapsed:.1f} s"
        )


@contextmanager
def show_progress(progress: Progress, *, quiet: bool) -> Iterator[None]:
    """Show it while the block runs, and once at its end."""
    if quiet:
        yield
        return
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with Live(progress, console=console, refresh_per_second=8):
            yield
    else:
        yield
        console.print(progress, soft_wrap=True)
