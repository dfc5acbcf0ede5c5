"""An engine that posts to ``/generate``, without streaming, and sends again what an abort left."""

from __future__ import annotations

from typing import Any

import aiohttp

from ..api.io_struct import ModelRequest, ModelResponse


async def arequest_with_retry(
    addr: str,
    endpoint: str,
    payload: dict[str, Any] | None = None,
    session: aiohttp.ClientSession | None = None,
    method: str = "POST",
    max_retries: int | None = None,
    timeout: float | None = None,
) -> Any:
    assert session is not None
    for attempt in range(max_retries or 1):
        try:
            async with session.request(method, f"http://{addr}{endpoint}", json=payload) as response:
                response.raise_for_status()
                return await response.json()
        except aiohttp.ClientError:
            if attempt + 1 == (max_retries or 1):
                raise
    return None


class RemoteInfEngine:
    def __init__(self, addr: str, session: aiohttp.ClientSession) -> None:
        self.addr = addr
        self.session = session
        self.version = 0

    async def agenerate(self, req: ModelRequest) -> ModelResponse:
        req = req.copy()
        limit = req.gconfig.max_new_tokens
        tokens: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        reason = None
        while reason not in ("stop", "length") and len(tokens) < limit:
            payload = {
                "input_ids": list(req.input_ids),
                "sampling_params": {"max_new_tokens": req.gconfig.max_new_tokens, "top_p": req.gconfig.top_p},
                "return_logprob": True,
                "stream": False,
            }
            if req.metadata.get("return_routed_experts"):
                payload["return_routed_experts"] = True
            result = await arequest_with_retry(
                session=self.session,
                addr=self.addr,
                endpoint="/generate",
                payload=payload,
                method="POST",
                max_retries=3,
                timeout=3600,
            )
            meta = result["meta_info"]
            reason = meta["finish_reason"]["type"]
            rows = meta["output_token_logprobs"]
            tokens += [row[1] for row in rows]
            logprobs += [row[0] for row in rows]
            versions += [self.version] * len(rows)
            req.input_ids += [row[1] for row in rows]
            req.gconfig.max_new_tokens -= len(rows)
        prompt = req.input_ids[: len(req.input_ids) - len(tokens)]
        return ModelResponse(prompt, tokens, logprobs, versions, "length" if reason == "abort" else str(reason))

    async def pause(self) -> Any:
        return await arequest_with_retry(self.addr, "/abort_request", {"rid": "", "abort_all": True}, self.session)
