"""One streamed ``/generate`` call through a framework's own HTTP client: what the adapters of such frameworks share.

``lookup`` takes things from the framework when they are needed; ``exchange`` is the request and its response, read no
further than asked; ``body`` its bytes; ``freeing`` tells the server that nobody waits any more; ``tokens`` what has
arrived, as frameworks keep it.
"""

from __future__ import annotations

from .exchange import Exchange
from .lookup import Lookup
from .tokens import CallTokens, StreamMode

__all__ = ["CallTokens", "Exchange", "Lookup", "StreamMode"]
