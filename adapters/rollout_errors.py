"""The one way in which using a sample can go wrong by itself.

What a stream says and does not fit is the core's own ``ProtocolError`` or ``ReplayError``; this is for calls that make
no sense at the moment they are made.  Knows nothing of samples.
"""

from __future__ import annotations

from ssefold import StreamError


class RolloutError(StreamError, ValueError):
    """The sample can not do what was asked of it now; the message says what to do first."""
