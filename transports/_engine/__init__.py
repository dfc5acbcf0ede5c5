"""What the clients share: reading, folding, cancelling, aborting, retrying, metrics."""

from __future__ import annotations

from .encoding import undo_encoding
from .url import printable_url, split_credentials, without_urls

__all__ = ["printable_url", "split_credentials", "undo_encoding", "without_urls"]
