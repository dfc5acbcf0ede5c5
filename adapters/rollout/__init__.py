"""Rollouts without a framework: a sample of plain arrays, and a loop that completes it over several servers.

::

    sample = RolloutSample(prompt_ids, sampling_params={"max_new_tokens": 512})
    def transport(url, payload):
        return ssefold.transports.httpx.generate(client, url, payload, idle_timeout=60)

    await run(sample, ["http://a:30000", "http://b:30000"], transport, attempts=4)

Needs no third-party package; a transport brings its client.
"""

from __future__ import annotations

from .arrays import RolloutArrays
from .call import Call, WeightSpan
from .errors import FailoverError, RolloutError
from .run import Transport, run
from .sample import RolloutSample, Status

__all__ = [
    "Call",
    "FailoverError",
    "RolloutArrays",
    "RolloutError",
    "RolloutSample",
    "Status",
    "Transport",
    "WeightSpan",
    "run",
]
