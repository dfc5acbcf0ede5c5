"""A generation that posts to ``/generate``, without streaming, through a client of its own."""

from __future__ import annotations

from typing import Any


class SGLangGeneration:
    def __init__(self, url: str, http_client: Any) -> None:
        self._url = url
        self._http_client = http_client

    async def generate_one_sample(
        self, sampling_params: dict[str, Any], input_ids: list[int], index: int
    ) -> tuple[int, list[int], list[float], bool]:
        payload = {"sampling_params": sampling_params, "return_logprob": True, "input_ids": input_ids}
        output = await self._http_client.post(self._url, payload)
        rows = output["meta_info"].get("output_token_logprobs", [])
        reason = output["meta_info"].get("finish_reason") or {}
        return index, [row[1] for row in rows], [row[0] for row in rows], reason.get("type") == "length"
