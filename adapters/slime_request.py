"""What slime sends to ``/generate`` for a sample, and how the server is freed when nobody waits any more.

Source: slime ``rollout/sglang_streaming_rollout.py`` and ``rollout/sglang_rollout.py``.  Nothing that the caller owns
is changed or aliased: a list that is sent must not grow with the sample.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("ssefold.adapters.slime")

_FREEING_SECONDS = 5.0


def payload_of(
    args: Any, sample: Any, prompt_ids: Any, params: dict[str, Any], encode_image: Callable[[Any], str] | None
) -> dict[str, Any]:
    """The body of the request.

    :param params: sampling parameters with the budget that is left.
    :param encode_image: an image to what SGLang takes in ``image_data``; None if there are none.
    """
    payload: dict[str, Any] = {
        "rid": uuid.uuid4().hex,
        "sampling_params": params,
        "return_logprob": True,
        "stream": True,
    }
    if args.use_rollout_routing_replay:
        payload["return_routed_experts"] = True
    images = sample.multimodal_inputs.get("images") if sample.multimodal_inputs else None
    if images and encode_image is not None:
        # The text of the prompt, so that the server expands the images' places by its own rules.
        payload["image_data"] = [encode_image(image) for image in images]
        payload["text"] = sample.prompt
    else:
        payload["input_ids"] = copied(prompt_ids)
    return payload


def headers_of(args: Any, sample: Any) -> dict[str, str] | None:
    """The header by which a consistently hashing router keeps a session on one worker; None elsewhere."""
    if sample.session_id and getattr(args, "router_policy", None) == "consistent_hashing":
        return {"X-SMG-Routing-Key": sample.session_id}
    return None


def copied(ids: Any) -> Any:
    """A list of its own; whatever a processor returns instead of a list stays what it is."""
    return list(ids) if isinstance(ids, list) else ids  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class Freeing:
    """Asks the server to stop generating, at most once; a failure is logged, since something else is on its way.

    :param client: slime's ``httpx.AsyncClient``.
    :param how: ``"disconnect"``: not at all, as the closed connection says it; ``"direct"``: ``POST /abort_request``;
        ``"router"``: the same to each worker that ``GET /workers`` names.
    :raises ValueError: ``how`` is none of these.
    """

    def __init__(self, client: Any, base_url: str, rid: str, how: str) -> None:
        if how not in ("disconnect", "direct", "router"):
            raise ValueError(f"args.ssefold_abort must be 'disconnect', 'direct' or 'router', not {how!r}")
        self._client = client
        self._base_url = base_url
        self._rid = rid
        self._how = how
        self._told = how == "disconnect"

    async def now(self) -> None:
        """Tell the server, unless that is done."""
        if self._told:
            return
        self._told = True
        task = asyncio.ensure_future(self._tell())
        try:
            await asyncio.wait([task], timeout=_FREEING_SECONDS)
        finally:
            if not task.done():
                task.cancel()
                _log.warning("no answer to the abort of %s within %s s", self._rid, _FREEING_SECONDS)
        if not task.cancelled() and task.done() and (error := task.exception()) is not None:
            _log.warning("the abort of %s failed: %r", self._rid, error)

    async def _tell(self) -> None:
        urls = [self._base_url]
        if self._how == "router":
            answer = await self._client.get(f"{self._base_url}/workers")
            answer.raise_for_status()
            urls = [worker["url"].rstrip("/") for worker in answer.json()["workers"]]
        for url in urls:
            (await self._client.post(f"{url}/abort_request", json={"rid": self._rid})).raise_for_status()
