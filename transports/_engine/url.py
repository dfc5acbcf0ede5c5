"""Urls as they may be shown, and what must not be: user, password, query and fragment."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote, urlsplit

_PARTS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:(?=//))?(?P<slashes>//)?(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
)
_HOST = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^\s:@\[\]\\]*)(:[0-9]*)?")
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]*")


def printable_url(url: object) -> str:
    """The url for messages, events and records: scheme, host, port and path.  Raises nothing, whatever ``url`` is."""
    found = _PARTS.match(str(url))
    if found is None:  # the pattern takes any string
        return ""
    scheme, slashes, authority, path = (part or "" for part in found.groups())
    host = authority.rpartition("@")[2]
    if not _HOST.fullmatch(host):
        # A password with a slash or a question mark in it: its end cannot be found.
        return f"{scheme}{slashes}(invalid url)"
    return scheme + slashes + host + path


def without_urls(text: str, *urls: object) -> str:
    """A foreign message with every URL in it made printable, and without the queries of ``urls``."""
    text = _IN_TEXT.sub(lambda found: printable_url(found[0]), text)
    for url in urls:
        for secret in re.split(r"[?#]", str(url))[1:]:
            text = text.replace(secret, "...") if secret else text
    return text


def split_credentials(url: str) -> tuple[str, str | None]:
    """The url without user and password, and the ``Authorization`` that they make, if it has any.

    An url that cannot be split is left to the client, which refuses it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, None
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    return parts._replace(netloc=host).geturl(), "Basic " + b64encode(unquote(user).encode("utf-8")).decode("ascii")
