"""What every test gets: the Hypothesis profiles and the repository's root.

Profiles (``HYPOTHESIS_PROFILE=ci pytest``):

``dev``
    The default: few examples, so that the whole suite stays a coffee's sip away.
``ci``
    More examples, and the same ones in every run, so that a failure is the change's own.
``nightly``
    Many examples, new ones each time: the profile that goes looking.

No profile has a deadline: machines are shared and noisy, and a test that fails by the clock says nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("nightly", settings.get_profile("dev"), max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree (a checkout or an unpacked sdist) that these tests belong to."""
    return Path(__file__).resolve().parent.parent


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped: a line for each reason, whatever the options are."""
    reports = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.write_sep("=", "why tests were skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:>5}  {reason}")
