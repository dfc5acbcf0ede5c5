"""What a client of either kind can do and means: hooks, bodies, timeouts, exceptions."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from .._engine import Verdict

_UNSENT = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
_CUT = {"RemoteProtocolError", "ReadError", "WriteError", "CloseError"}


def with_patient_hooks(client: Any, raised: list[Exception]) -> Any:
    """The client, or a copy of it whose response hooks may raise: what they raise is noted, and the answer stays."""
    hooks: list[Callable[[Any], Any]] = getattr(client, "event_hooks", {}).get("response", [])
    if not hooks:
        return client

    def patient(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def call(response: Any) -> None:
            try:
                await hook(response)
            except Exception as error:  # noqa: BLE001  # the hook's own business
                raised.append(error)

        def call_blocking(response: Any) -> None:
            try:
                hook(response)
            except Exception as error:  # noqa: BLE001  # the hook's own business
                raised.append(error)

        return call if hasattr(client, "aclose") else call_blocking

    other = copy.copy(client)
    other.event_hooks = {**client.event_hooks, "response": [patient(hook) for hook in hooks]}
    return other


def raw_body(response: Any, raw: str, decoded: str) -> Any:
    """The raw body; or the decompressed one, if the client gives no other."""
    chunks: AsyncIterator[bytes] | Iterator[bytes] = getattr(response, decoded if is_decoded(response) else raw)()
    return chunks


def is_decoded(response: Any) -> bool:
    """The client gives only decompressed content: it has no other way, or has read the body beforehand."""
    raw = hasattr(response, "aiter_raw") or hasattr(response, "iter_raw")
    return not raw or bool(getattr(response, "is_stream_consumed", False))


def timeouts(client: Any, **seconds: float | None) -> dict[str, Any]:
    """Arguments of a request that change some of the client's own timeouts."""
    own = getattr(client, "timeout", None)
    if own is None:
        return {}
    kept = {"connect": own.connect, "read": own.read, "write": own.write, "pool": own.pool}
    return {"timeout": type(own)(**{**kept, **seconds})}


def judge(error: Exception) -> Verdict:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "PoolTimeout" in names:
        return Verdict(unsent=True, hint="its pool has no connection to spare: raise httpx.Limits")
    if "ReadTimeout" in names:
        return Verdict(hint="nothing came for the client's own read timeout: set idle_timeout")
    return Verdict(unsent=bool(names & _UNSENT), cut=bool(names & _CUT))
