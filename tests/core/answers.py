"""What the same request gives with ``stream: false``, and in what a stream may differ from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ssefold.transports.testing import HTTPFailureError, Profile, Script, nonstream
from tests.core.by_hand import exact


def answer(script: Script, profile: Profile, sends: Sequence[int] | None = None) -> dict[str, Any] | None:
    """The non-streaming response as JSON says it; None where it is an HTTP error."""
    try:
        whole = nonstream(script, profile, sends=None if sends is None else [sends])
    except HTTPFailureError:
        return None
    parsed: dict[str, Any] = json.loads(json.dumps(whole), parse_constant=lambda _: None)
    return parsed


def agrees_with_answer(response: Mapping[str, Any], whole: Mapping[str, Any], script: Script, profile: Profile) -> None:
    """Assert that a stream's ``native_response`` is the non-streaming response."""
    queued = script.finish.how == "queued"
    if queued and profile.queue_abort == "bare":
        # It says no tokens, whatever was generated: what came before it is more.
        assert response["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]
        return
    meta, wanted = dict(response["meta_info"]), dict(whole["meta_info"])
    if not queued:
        assert set(meta) == set(wanted)
        assert set(response) == set(whole)
    # Chunks before a queue abort said more than the abort does; nothing that it says is missing.
    for name, value in wanted.items():
        assert exact(meta.get(name, "missing")) == exact(value), name
    for name in set(whole) - {"meta_info", "output_ids"}:
        # Where no text was ever sent, a queue abort still says "".
        assert exact(response.get(name, "")) == exact(whole[name]), name
    if "output_ids" in whole:
        # 0.5.1 to 0.5.4 put up to five prompt ids in front, also here.
        ids = whole["output_ids"]
        assert response["output_ids"] == (list(script.token_ids) if profile.prompt_tail else ids)
