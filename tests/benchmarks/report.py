"""What was measured, as one page of Markdown: bars first, then a table a section, then the machine.

Knows tables and words; what is measured and how is other modules' business.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = (
    "ssefold", "orjson", "msgspec", "httpx", "httpx-sse", "httpx2", "openai", "anthropic", "launchdarkly-eventsource",
    "sseclient-py", "aiohttp", "aiohttp-sse-client2",
)  # fmt: skip
_INTRO = """\
# Benchmarks

`make bench` wrote this page; [performance](performance.md) says how to read it and what follows from it. All figures
are of one run, in one process. Times are CPU times of the process, the smallest of rounds in which the contenders
take turns. The code is in `tests/benchmarks`: bodies, contenders and peers are made and described there, and the test
suite checks that all of them give the same results.
"""


@dataclass(frozen=True)
class Bar:
    """One figure that the library is held to."""

    what: str
    bar: str
    measured: str
    reached: bool
    stretch: str = "-"
    """What would be better still; never missed."""


@dataclass(frozen=True)
class Section:
    """One table, and the bars that are read off it."""

    title: str
    text: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar] = field(default=())


def at_least(what: str, limit: float, value: float, detail: str = "", *, stretch: float | None = None) -> Bar:
    """A ratio that should be ``limit`` or more."""
    return Bar(
        what,
        f"at least {limit:g}x",
        f"{value:.2f}x{detail}",
        value >= limit,
        "-" if stretch is None else f"{stretch:g}x",
    )


def at_most(what: str, limit: float, value: float, detail: str = "") -> Bar:
    """A ratio that should be ``limit`` or less."""
    return Bar(what, f"at most {limit:g}x", f"{value:.2f}x{detail}", value <= limit)


def bars_table(sections: Sequence[Section]) -> str:
    """The bars of all sections, and whether they are reached."""
    bars = [bar for section in sections for bar in section.bars]
    rows = [[bar.what, bar.bar, bar.stretch, bar.measured, "yes" if bar.reached else "**no**"] for bar in bars]
    return table(["what", "bar", "stretch", "measured", "reached"], rows)


def page(sections: Sequence[Section], machine: Sequence[tuple[str, str]]) -> str:
    """The whole page."""
    parts = [_INTRO, "## Bars\n", bars_table(sections)]
    for section in sections:
        parts += [f"## {section.title}\n", section.text.strip() + "\n", table(section.header, section.rows)]
    parts += ["## Machine and versions\n", table(["", ""], machine)]
    return "\n".join(parts)


def with_table(text: str, section: Section) -> str:
    """A page with this section's text and table between ``<!-- bench -->`` and ``<!-- /bench -->``."""
    before, _, rest = text.partition(_MARKS[0])
    _, _, after = rest.partition(_MARKS[1])
    return "\n".join([before + _MARKS[0], section.text, table(section.header, section.rows), _MARKS[1]]) + after


_MARKS = ("<!-- bench -->", "<!-- /bench -->")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose source is readable, too: columns of figures are flush right."""
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    right = [at > 0 and all(row[at][:1].isdigit() or row[at] in ("", "-") for row in rows) for at in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(cells, widths, right, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [f"{'-' * (width + 1)}:" if flush else "-" * (width + 2) for width, flush in zip(widths, right, strict=True)]
    return "\n".join([line(header), f"|{'|'.join(rule)}|", *map(line, rows)]) + "\n"


def machine(load: Sequence[float]) -> list[tuple[str, str]]:
    """What the figures were measured on; no names of hosts or folders.

    :param load: the load averages over one minute that were seen during the run.
    """
    found = [
        ("CPU", f"{_cpu()}, {os.cpu_count()} cores"),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("other load", f"load average between {min(load):.1f} and {max(load):.1f} during the run, this one included"),
    ]
    return found + [(name, _version(name)) for name in _PACKAGES]


def load_average() -> float:
    """Processes that want a core, over one minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def milliseconds(seconds: float) -> str:
    """Three figures, in ms."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
