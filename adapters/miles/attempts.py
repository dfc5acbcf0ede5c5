"""Which failures another attempt may cure, as in miles' own ``post``: those before the first token.

miles repeats every failed request, 60 times, a second apart.  Here a request that another attempt would fail in the
same way (a 4xx, a stream that contradicts itself) is not repeated, and tokens that have arrived are never thrown away.
Source: miles ``utils/http_utils.py``.
"""

from __future__ import annotations

from ssefold import IncompleteStreamError, ServerError, StreamError

ATTEMPTS = 60
PAUSE = 1.0

_TRY_AGAIN = (408, 429)


def worth_another(error: Exception, *, from_client: bool) -> bool:
    """Another attempt may succeed.

    :param from_client: the HTTP client raised it: no connection, a status, a broken response.
    """
    if isinstance(error, ServerError):
        return _status_may_pass(error.code)
    if isinstance(error, StreamError):
        return isinstance(error, IncompleteStreamError)
    return from_client and _status_may_pass(getattr(getattr(error, "response", None), "status_code", None))


def _status_may_pass(status: int | str | None) -> bool:
    return not isinstance(status, int) or status >= 500 or status in _TRY_AGAIN
