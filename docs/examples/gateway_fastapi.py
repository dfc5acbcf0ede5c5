"""A gateway that passes a stream on untouched, byte by byte, and folds it on the side to log what went through.

Needs: pip install httpx fastapi uvicorn, and ssefold itself (in a clone: pip install .)
Run:   python gateway_fastapi.py [http://localhost:30000], then POST http://127.0.0.1:8000/generate
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from ssefold import GenerateDecoder, StreamError
from ssefold.transports.testing import FakeSGLang

log = logging.getLogger("gateway")


def make_app(upstream: str) -> FastAPI:
    app = FastAPI()
    client = httpx.AsyncClient(timeout=None)

    @app.post("/generate")
    async def generate(request: Request) -> StreamingResponse:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        asked = client.build_request("POST", f"{upstream}/generate", content=await request.body(), headers=headers)
        response = await client.send(asked, stream=True)
        kind = response.headers.get("content-type")
        return StreamingResponse(tee(response), status_code=response.status_code, media_type=kind)

    return app


async def tee(response: httpx.Response) -> AsyncIterator[bytes]:
    decoder = GenerateDecoder()
    try:
        async for data in response.aiter_raw():
            yield data  # first, whatever folding makes of it
            if decoder.error is None:
                decoder.feed(data)
        decoder.close()
    except StreamError as error:
        log.warning("stream of %s: %s", response.url, error)
    finally:
        await response.aclose()
        for index, output in decoder.outputs.items():
            log.info("output %d: %d tokens, %s", index, len(output.token_ids), output.finish_reason)


if __name__ == "__main__":
    import uvicorn

    logging.basicConfig(level=logging.INFO)
    with FakeSGLang() as fake:
        uvicorn.run(make_app(sys.argv[1] if len(sys.argv) > 1 else fake.url), port=8000)
