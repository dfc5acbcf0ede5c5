"""Fixtures of the transports' tests: the stacks, servers, and time that does not pass."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Any

import pytest

from ssefold.transports._engine import stream as _stream
from ssefold.transports.testing import FakeSGLang
from tests.transports.stacks import ALL_STACKS, Stack, requires


@pytest.fixture(params=ALL_STACKS, ids=repr)
def stack(request: pytest.FixtureRequest) -> Stack:
    """Every client stack."""
    requires(request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[stack for stack in ALL_STACKS if not stack.is_sync], ids=repr)
def async_stack(request: pytest.FixtureRequest) -> Stack:
    """Every stack that can be cancelled."""
    requires(request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeSGLang]]:
    """Starts fake servers, and stops them after the test."""
    with ExitStack() as running:
        yield lambda *args, **kwargs: running.enter_context(FakeSGLang(*args, **kwargs))


@pytest.fixture
def server(serve: Callable[..., FakeSGLang]) -> FakeSGLang:
    """A fake server without faults."""
    return serve()


@pytest.fixture(scope="session", autouse=True)
def _garbage_of_today() -> None:
    """Collections look at what tests leave, not at the libraries, which are imported before them."""
    for library in ("anyio", "trio", "httpx", "aiohttp", "h11"):
        with suppress(ImportError):
            import_module(library)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""

    def backoff(attempt: int, retry_after: float | None = None) -> float:
        return 0.0

    monkeypatch.setattr(_stream, "backoff", backoff)


@pytest.fixture
def events() -> list[tuple[str, dict[str, Any]]]:
    """Where an ``on_event`` hook of a test may write."""
    return []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let asyncio drop a socket in the one moment in which aiohttp is cancelled between connecting and using it.

    The transport belongs to nobody then: neither aiohttp nor the library can close it, and the collector does.
    """
    dropped = "ignore:Exception ignored in. <(function _SelectorTransport.__del__|socket.socket)"
    for item in items:
        if item.path.name == "test_connecting.py" and "aiohttp" in item.name:
            item.add_marker(pytest.mark.filterwarnings(f"{dropped}:pytest.PytestUnraisableExceptionWarning"))
