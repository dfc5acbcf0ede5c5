"""Every Python block of the README and of docs/ runs, every link leads somewhere, every public name is described.

The blocks of one file run in order, in one namespace, in a fresh interpreter that sits in an empty folder; a failure
names the file and its own line.  A block that cannot run here says why before it: ``<!-- skip: reason -->``.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

# Optional packages: a page that needs one is skipped where it is absent; anything else that is absent is a failure.
EXTRAS = {"httpx", "aiohttp", "anyio", "h11", "orjson", "click", "rich", "numpy", "ray"}
PYTHON = "python"
NOT_OURS_TO_RUN = {"", "console", "bash", "sh", "text", "json", "toml", "yaml", "diff", "http", "mermaid", "make"}

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)")
SKIP = re.compile(r"^\s*<!--\s*skip:\s*(?P<reason>.*?)\s*-->\s*$")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
NAMED = re.compile(r"`(?P<path>(?:core|transports|adapters|tests|docs|\.ci)/[\w./*-]+)(?:::(?P<test>\w+))?`")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)
#: Public modules, and the files that list their names: read, not imported, since some need an optional package.
PUBLIC_MODULES = {
    "ssefold": "core/__init__.py",
    "ssefold.transports": "transports/__init__.py",
    "ssefold.transports.httpx": "transports/httpx/__init__.py",
    "ssefold.transports.aiohttp": "transports/aiohttp.py",
    "ssefold.transports.anyio": "transports/anyio/__init__.py",
    "ssefold.transports.testing": "transports/testing/__init__.py",
    "ssefold.adapters.rollout": "adapters/rollout/__init__.py",
    "ssefold.adapters.slime": "adapters/slime/__init__.py",
    "ssefold.adapters.miles": "adapters/miles/__init__.py",
}


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    code: str
    line: int  # of its first line of code, from 1
    skip: str = ""  # the reason, if it cannot run


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, outermost fences only; a fence that does not end is a mistake of the page."""
    found: list[Block] = []
    lines = text.splitlines()
    position, reason = 0, ""
    while position < len(lines):
        line = lines[position]
        position += 1
        opening, skip = FENCE.match(line), SKIP.match(line)
        if opening:
            end = _closing(lines, position, opening["fence"])
            inside = [code.removeprefix(opening["indent"]) for code in lines[position:end]]
            found.append(Block(opening["language"], "\n".join(inside) + "\n", position + 1, reason))
            position, reason = end + 1, ""
        elif skip:
            reason = skip["reason"] or pytest.fail(f"line {position}: a skip needs its reason")
        elif line.strip():
            reason = ""
    return found


def _closing(lines: list[str], start: int, fence: str) -> int:
    for position in range(start, len(lines)):
        if re.fullmatch(rf" *{re.escape(fence[0])}{{{len(fence)},}} *", lines[position]):
            return position
    raise AssertionError(f"the fence of line {start} does not end")


def extras_of(code: str) -> set[str]:
    """Optional packages that this code imports, by themselves or by one of our transports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {part for name in names for part in name.removeprefix("ssefold.transports.").split(".")[:1]} & EXTRAS


# The page's own lines in the traceback: each block is compiled at the line it stands on.
RUNNER = """
import ast, json, sys
blocks, page = json.load(sys.stdin), sys.argv[1]
namespace = {"__name__": "__main__"}
for line, code in blocks:
    tree = ast.increment_lineno(ast.parse(code, page), line - 1)
    exec(compile(tree, page, "exec"), namespace)
"""


def run_blocks(page: Path, blocks: list[Block], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-W", "error", "-c", RUNNER, str(page)],
        input=json.dumps([[block.line, block.code] for block in blocks]),
        cwd=cwd, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in (README, TUTORIAL)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_python_block_runs(page: Path, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == PYTHON]
    to_run = [block for block in blocks if not block.skip]
    for extra in sorted({extra for block in to_run for extra in extras_of(block.code)}):
        pytest.importorskip(extra, reason=f"{page.name} uses {extra}")
    if blocks and not to_run:
        pytest.skip("; ".join(f"line {block.line}: {block.skip}" for block in blocks))
    done = run_blocks(page, to_run, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the README uses httpx")
    _prints_what_it_shows(README, tmp_path)


def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    for extra in ("httpx", "click", "rich"):
        pytest.importorskip(extra, reason=f"the tutorial uses {extra}")
    blocks = _prints_what_it_shows(TUTORIAL, tmp_path)
    commands = 0
    for block in blocks:
        for command, shown in re.findall(r"(?m)^\$ ssefold (.*)\n((?:(?!\$).*\n)*)", block.code):
            done = subprocess.run(
                [sys.executable, "-I", "-X", "utf8", "-m", "ssefold.adapters.cli", *command.split()],
                cwd=tmp_path, capture_output=True, text=True, encoding="utf-8",
            )  # fmt: skip
            assert agrees(done.stdout, shown), done.stdout + done.stderr
            assert done.returncode == 0
            commands += 1
    assert commands == 2


def _prints_what_it_shows(page: Path, cwd: Path) -> list[Block]:
    """And runs, of course."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    ran = run_blocks(page, [block for block in blocks if block.language == PYTHON], cwd)
    assert ran.returncode == 0, ran.stderr
    shown = "...\n".join(block.code for block in blocks if block.language == "text")
    assert agrees(ran.stdout, shown), ran.stdout
    return blocks


def agrees(printed: str, shown: str) -> bool:
    """Line by line the same; `...` on a line of its own stands for any lines."""
    pattern = "".join(".*" if line == "...\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_what_it_is(page: Path) -> None:
    """A block fenced as `py` or `pycon` would look like one that is run, and is not."""
    languages = {block.language for block in blocks_of(page.read_text(encoding="utf-8"))}
    assert languages - NOT_OURS_TO_RUN <= {PYTHON}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert lost_links(page) == []


def lost_links(page: Path) -> list[str]:
    """Links of a page to files that are not there, or to headings that their page does not have."""
    targets = [match["target"] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    lost: list[str] = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text(encoding="utf-8"))):
            lost.append(target)
    return lost


def anchors_of(text: str) -> set[str]:
    """The anchors that code hosts, and the site, give to the headings of a page."""
    outside: list[str] = []
    fence = ""
    for line in text.splitlines():
        opening = FENCE.match(line)
        if opening and not fence:
            fence = opening["fence"]
        elif fence:
            fence = "" if line.strip() == fence else fence
        else:
            outside.append(line)
    titles = [match["title"] for match in HEADING.finditer("\n".join(outside))]
    return {re.sub(r"[^\w -]", "", LINK.sub("", title).lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_and_test_that_a_page_names_is_there(page: Path) -> None:
    gone: list[str] = []
    for named in NAMED.finditer(page.read_text(encoding="utf-8")):
        path, test = ROOT / named["path"], named["test"]
        if re.search(r"NAME|NN_|\*", named["path"]):
            continue  # it stands for one that is to be made, or for several
        if not path.exists() or (test and not re.search(rf"(?m)^ *(async )?def {test}\(", path.read_text("utf-8"))):
            gone.append(named[0])
    assert gone == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_reference_describes_every_public_name(module: str) -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    described = {name for page in pages for name in re.findall(r"(?m)^::: (\S+)$", page.read_text(encoding="utf-8"))}
    [names] = [
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / PUBLIC_MODULES[module]).read_bytes()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert [name for name in names if f"{module}.{name}" not in described] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """The strict build says so too; this says it sooner."""
    in_order = re.findall(r"[\w./-]+\.md(?=$|\n)", (ROOT / ".ci" / "site.yml").read_text(encoding="utf-8"))
    listed = set(in_order)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT}
    pages |= set(runpy.run_path(str(ROOT / ".ci" / "site_pages.py"))["PAGES"].values())
    assert pages - listed == set(), "add it to `nav` in .ci/site.yml"
    assert listed - pages == set()
    assert len(in_order) == len(listed)


@pytest.mark.parametrize(
    ("page", "link", "in_site"),
    [
        ("index.md", "(docs/cli.md#demo)", "(cli.md#demo)"),
        ("index.md", "(CHANGELOG.md)", "(changelog.md)"),
        ("how-it-works.md", "(../README.md)", "(index.md)"),
        ("CONTRIBUTING.md", "(../tests/live/README.md)", "(live-tests.md)"),
        ("reference/core.md", "(../cli.md)", "(../cli.md)"),
        ("examples/README.md", "(sync_script.py)", "(sync_script.py)"),
        ("cli.md", "(../Makefile)", "(../Makefile)"),  # no page of the site: its strict build refuses it
        ("cli.md", "(#demo)", "(#demo)"),
        ("cli.md", "(https://example.org/docs/cli.md)", "(https://example.org/docs/cli.md)"),
    ],
)
def test_the_site_bends_links_to_where_its_pages_are(page: str, link: str, in_site: str) -> None:
    relinked = runpy.run_path(str(ROOT / ".ci" / "site_pages.py"))["relinked"]
    assert relinked(f"See [it]{link}.", page) == f"See [it]{in_site}."


class TestTheReaderOfPages:
    def test_blocks_share_one_namespace_in_order(self, tmp_path: Path) -> None:
        blocks = blocks_of("```python\nx = 1\n```\ntext\n```python title='b'\nassert x == 1\n```\n")
        assert run_blocks(Path("page.md"), blocks, tmp_path).returncode == 0

    def test_a_failure_names_the_page_and_its_line(self, tmp_path: Path) -> None:
        blocks = blocks_of("# Title\n\n```python\nx = 1\nassert x == 2\n```\n")
        done = run_blocks(Path("page.md"), blocks, tmp_path)
        assert done.returncode == 1
        assert 'File "page.md", line 5' in done.stderr

    def test_a_warning_is_a_failure(self, tmp_path: Path) -> None:
        blocks = blocks_of("```python\nimport warnings\nwarnings.warn('old')\n```\n")
        assert run_blocks(Path("page.md"), blocks, tmp_path).returncode == 1

    def test_a_skip_holds_for_the_next_block_only(self) -> None:
        text = "<!-- skip: needs a GPU -->\n\n```python\n1/0\n```\n```python\n2\n```\n"
        assert [(block.code, block.skip) for block in blocks_of(text)] == [("1/0\n", "needs a GPU"), ("2\n", "")]

    def test_words_between_a_skip_and_a_block_undo_it(self) -> None:
        [block] = blocks_of("<!-- skip: because -->\nMore.\n```python\nx\n```\n")
        assert block.skip == ""

    def test_a_skip_without_a_reason_fails(self) -> None:
        with pytest.raises(pytest.fail.Exception, match="reason"):
            blocks_of("<!-- skip: -->\n```python\nx\n```\n")

    def test_a_block_in_a_list_is_freed_of_its_indent(self) -> None:
        [block] = blocks_of("1. One\n\n   ```python\n   if True:\n       x = 1\n   ```\n")
        assert block.code == "if True:\n    x = 1\n"

    def test_a_fence_inside_a_longer_fence_is_text(self) -> None:
        [block] = blocks_of("````text\n```python\n1/0\n```\n````\n")
        assert block.language == "text"

    def test_a_fence_that_does_not_end_fails(self) -> None:
        with pytest.raises(AssertionError, match="does not end"):
            blocks_of("```python\nx\n")

    def test_a_link_to_a_heading_needs_that_heading(self, tmp_path: Path) -> None:
        page, other = tmp_path / "page.md", tmp_path / "other.md"
        other.write_text("# A `b` & c!\n```text\n# no heading\n```\n", encoding="utf-8")
        page.write_text(
            "## Here\n[a](#here) [b](other.md#a-b--c) [c](other.md#no-heading) [d](#there) [e](x.md)", "utf-8"
        )
        assert lost_links(page) == ["other.md#no-heading", "#there", "x.md"]

    def test_what_a_page_shows_is_what_was_printed(self) -> None:
        assert agrees("a 1\nb 2\nc 3\n", "a 1\n...\nc 3\n")
        assert agrees("a 1\nb 2\n", "a 1\nb 2\n")
        assert not agrees("a 1\nb 2\nc 3\n", "a 1\nc 3\n")
        assert not agrees("a 1\nb 2\n", "a 1\n")
        assert agrees("a 1\nb 2\n", "a 1\n...\n")

    def test_the_extras_of_a_page_are_those_it_imports(self) -> None:
        assert extras_of("import httpx\nfrom ssefold.transports import aiohttp\nimport json") == {"httpx", "aiohttp"}
        assert extras_of("import ssefold.transports.anyio\nimport ssefold, torch") == {"anyio"}
