"""One request, made ready once: its bytes, its headers, its ids, and how many outputs it must bring.

The caller's payload and headers are read, never changed and never kept.  This module knows of no client.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast
from urllib.parse import urljoin

from ssefold import PayloadError

from .url import printable_url, split_credentials

_OURS = {"accept": "text/event-stream", "accept-encoding": "identity", "content-type": "application/json"}


@dataclass(frozen=True)
class PreparedRequest:
    """What is sent, as often as it is sent.

    :ivar url: without user and password; they are in ``headers``.
    :ivar headers: sent with the request, and to the same server's other endpoints.
    :ivar own_headers: the caller's own and ours, for other servers (a router's workers).
    :ivar rids: the ids that the server will know the prompts by, in their order (``io_struct._normalize_rid``).
    :ivar expected: how many outputs the answer has; None where the payload does not tell.
    :ivar samples: ``n``: with more than one, the server makes its own ids.
    """

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    own_headers: Mapping[str, str] = field(repr=False)
    rid: str | tuple[str, ...]
    rids: tuple[str, ...]
    expected: int | None
    samples: int | None

    def sibling(self, name: str) -> str:
        """The url of another endpoint of the same server."""
        return urljoin(self.url, name)

    @cached_property
    def place(self) -> str:
        """The url for messages."""
        return printable_url(self.url)


def prepare(
    url: object, payload: Mapping[str, Any], *, rid: str | None = None, headers: Mapping[str, str] | None = None
) -> PreparedRequest:
    """Read url and payload.

    :raises ValueError: the url has no host where one should be.
    :raises PayloadError: the payload is not an object, cannot be written as JSON, or its ``rid``, ``input_ids`` or
        ``sampling_params.beam_width`` is of a wrong type.
    """
    if not isinstance(payload, Mapping):
        raise PayloadError(f"the payload must be a mapping (the JSON object to send), found {type(payload).__name__}")
    own_rid = rid if rid is not None else payload.get("rid")
    if own_rid is None:
        own_rid = uuid.uuid4().hex
    kept_rid = _checked_rid(own_rid)
    sent = {**payload, "stream": True, "rid": own_rid}
    prompts = _prompts(payload)
    samples = _samples(payload.get("sampling_params"))
    own_headers = _headers(headers)
    if "(invalid" in printable_url(url):
        raise ValueError(
            f"the url {printable_url(url)} cannot be split into its parts; write '/', '?', '#' and '@' in a user or "
            "password as %2F, %3F, %23 and %40"
        )
    bare_url, authorization = split_credentials(str(url))
    given = authorization is None or any(name.lower() == "authorization" for name in own_headers)
    return PreparedRequest(
        url=bare_url,
        body=_encode(sent),
        headers=own_headers if given else {**own_headers, "authorization": str(authorization)},
        own_headers=own_headers,
        rid=kept_rid,
        rids=_rids(kept_rid, prompts),
        expected=(prompts or 1) * samples if samples and prompts != 0 else None,
        samples=samples,
    )


def _checked_rid(rid: object) -> str | tuple[str, ...]:
    # Not empty: the scheduler matches by prefix, and aborting "" would abort every request.
    if isinstance(rid, str) and rid:
        return rid
    if isinstance(rid, list | tuple) and rid:
        several = cast("Sequence[object]", rid)
        kept = tuple(one for one in several if isinstance(one, str) and one)
        if len(kept) == len(several):
            return kept
    raise PayloadError(
        f"rid must be a str that is not empty, or a list of such (one a prompt), found {rid!r:.200}; without rid, or "
        "with None, one is made"
    )


def _encode(payload: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(payload, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"the payload cannot be written as JSON: {error}") from error


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in (headers or {}).items() if name.lower() not in _OURS}
    return {**kept, **_OURS}


def _prompts(payload: Mapping[str, Any]) -> int | None:
    """Number of prompts of a batch; None for a single one; 0 if unknown."""
    if "input_embeds" in payload:
        return 0
    ids = payload.get("input_ids")
    if ids is not None:
        if not isinstance(ids, list | tuple):
            raise PayloadError(
                f"input_ids must be a list of token ids, or a list of such lists, found {type(ids).__name__}"
            )
        return len(ids) if len(ids) and not _is_number(ids[0]) else None
    text: Any = payload.get("text")
    texts: list[Any] | None = text if isinstance(text, list) else None
    return None if texts is None else len(texts)


def _is_number(value: object) -> bool:
    return not hasattr(value, "__len__")


def _samples(params: Any) -> int | None:
    several: list[Any] = params if isinstance(params, list) else [params]
    found: set[int] = set()
    for one in several:
        if one is None:
            found.add(1)
        elif isinstance(one, Mapping) and not _beam(cast("Mapping[str, Any]", one)):
            n = cast("Mapping[str, Any]", one).get("n", 1)
            found.add(n if isinstance(n, int) and n > 0 else 0)
        else:
            return None
    return found.pop() or None if len(found) == 1 else None


def _beam(params: Mapping[str, Any]) -> bool:
    # How many outputs beam search has is not for us to say.
    width = params.get("beam_width")
    if width is not None and not isinstance(width, int | float):
        raise PayloadError(f"sampling_params.beam_width must be a whole number, found {width!r:.200}")
    return bool(params.get("use_beam_search")) or (width or 1) > 1


def _rids(rid: str | tuple[str, ...], prompts: int | None) -> tuple[str, ...]:
    if not isinstance(rid, str):
        return rid
    return tuple(f"{rid}_{i}" for i in range(prompts)) if prompts else (rid,)
