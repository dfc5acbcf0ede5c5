"""A plain script without async: stream several samples of one prompt, then show each as stream=false would give it.

Needs: pip install httpx, and ssefold itself (in a clone: pip install .)
Run:   python sync_script.py [http://localhost:30000]
Without a URL it uses a fake server (FakeSGLang).
"""

from __future__ import annotations

import sys
from typing import Any

import httpx

from ssefold import StreamError
from ssefold.transports.httpx import generate
from ssefold.transports.testing import FakeSGLang

PAYLOAD = {"input_ids": [1, 2, 3], "return_logprob": True, "sampling_params": {"n": 3, "max_new_tokens": 12}}


def main(url: str) -> dict[int, dict[str, Any]]:
    with httpx.Client(timeout=None) as client, generate(client, f"{url}/generate", PAYLOAD, retries=2) as stream:
        try:
            for update in stream:
                print(f"[{update.index}] +{len(update.token_ids)} tokens {update.text!r}")
        except StreamError as error:
            print(f"failed: {error}; {len(error.partial)} outputs had begun", file=sys.stderr)
            raise
        responses = {index: output.native_response() for index, output in stream.outputs.items()}
    for index, response in sorted(responses.items()):
        print(index, response["output_ids"], response["meta_info"]["finish_reason"])
    return responses


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with FakeSGLang() as server:
            main(server.url)
