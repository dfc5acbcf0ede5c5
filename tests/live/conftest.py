"""Fixtures of the live tests: opt-in, one server at a time, and a list of what was seen.

``SSEFOLD_LIVE`` is the folder that ``sglang_cpu/setup.sh`` made, whose server is then started in either mode; or the
url of a server that runs, whose ``TRUTH_FILE`` is named by ``SSEFOLD_LIVE_TRUTH``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.server import LiveServer, Mode, started
from tests.transports.stacks import ALL_STACKS, Stack, requires

WHERE = os.environ.get("SSEFOLD_LIVE", "")
TRUTH = os.environ.get("SSEFOLD_LIVE_TRUTH", "")
HERE = Path(__file__).parent
SEEN: list[str] = []
STACKS = [stack for stack in ALL_STACKS if stack.name != "httpx-trio"]
"""Over trio too there is one with a client of its own; a test takes its second here."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs a real SGLang server: see tests/live/README.md, and set SSEFOLD_LIVE")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
            if not WHERE:
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SEEN:
        terminalreporter.section("seen on the real server")
        for line in SEEN:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", params=["cumulative", "incremental"])
def live(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """A real server, once in each mode; pytest runs all tests of one mode before it starts the other's server."""
    mode: Mode = request.param
    if not WHERE.startswith("http"):
        with started(Path(WHERE).absolute(), mode) as server:
            yield server
        return
    if not TRUTH:
        pytest.fail("SSEFOLD_LIVE is a url: SSEFOLD_LIVE_TRUTH must name the TRUTH_FILE of that server")
    processor = Path(TRUTH).parent.parent / "clp.txt"
    running = LiveServer(WHERE.rstrip("/"), Path(TRUTH), processor.read_text() if processor.exists() else None)
    if running.mode() != mode:
        pytest.skip(f"the server at {WHERE} streams in the other mode")
    yield running


@pytest.fixture
def mode(live: LiveServer) -> Mode:
    return live.mode()


@pytest.fixture(autouse=True)
def _nothing_runs_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test leaves no request behind that would slow the next one."""
    yield
    if "live" in request.fixturenames:
        truth = request.getfixturevalue("live").truth
        for rid in truth.running():
            truth.end_of(rid)


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes something for the summary: times are looked at by people, not by assertions."""

    def note(what: str) -> None:
        SEEN.append(f"{request.node.name}: {what}")

    return note


@pytest.fixture(params=STACKS, ids=repr)
def stack(request: pytest.FixtureRequest) -> Stack:
    """Every client stack."""
    requires(request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[stack for stack in STACKS if not stack.is_sync], ids=repr)
def async_stack(request: pytest.FixtureRequest) -> Stack:
    """Every stack that can wait for several things at once."""
    requires(request.param)
    return request.param  # type: ignore[no-any-return]
