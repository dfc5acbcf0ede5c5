"""What a session id cannot do: slime's adapter sends it as a header (``docs/security.md``)."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold.transports.testing import FakeSGLang

from .test_over_http import Call

httpx = pytest.importorskip("httpx", reason="slime's client is httpx's")


@pytest.mark.parametrize("session", ["a\r\nX-Evil: 1", "a\nb", "a\x00b"], ids=["CRLF", "LF", "NUL"])
def test_a_session_id_that_would_be_another_header_is_not_sent(slime: Any, session: str) -> None:
    with FakeSGLang() as server:
        call = Call(slime, server, router_policy="consistent_hashing")
        sample = slime.Sample(prompt="p")
        sample.session_id = session
        with pytest.raises(httpx.LocalProtocolError):
            call(sample)
        assert server.counters.requests == 0
    assert sample.response_length == 0
    assert sample.status == slime.Sample.Status.PENDING


def test_an_ordinary_one_is(slime: Any) -> None:
    with FakeSGLang() as server:
        call = Call(slime, server, router_policy="consistent_hashing")
        sample = slime.Sample(prompt="p")
        sample.session_id = "session-1"
        call(sample)
        assert server.counters.requests == 1
    assert sample.response_length == 24
