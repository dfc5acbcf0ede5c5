"""One streamed ``/generate`` call through a framework's own HTTP client: the code that these adapters share.

``lookup`` finds parts of the framework when they are needed; ``exchange`` is the request and its response; ``body``
reads the bytes; ``freeing`` stops the server after a cancelled call; ``tokens`` keeps the tokens so far, as frameworks
do.
"""

from __future__ import annotations

from .exchange import Exchange
from .lookup import Lookup
from .tokens import CallTokens, StreamMode

__all__ = ["CallTokens", "Exchange", "Lookup", "StreamMode"]
