"""The command as such: what it needs, what it says of itself, and its exit statuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

import ssefold

from .conftest import DATA, Run, run_process


def commands() -> dict[str, Any]:
    """Every subcommand by name."""
    import click

    from ssefold.adapters.cli.app import app

    context = click.Context(app)
    return {name: app.get_command(context, name) for name in app.list_commands(context)}


@pytest.mark.parametrize("package", ["click", "rich", "httpx"])
def test_a_missing_package_is_one_line_that_says_what_to_install(package: str) -> None:
    ran = run_process("demo", prelude=f"import sys; sys.modules[{package!r}] = None")
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err == f"ssefold: the command needs {package}: pip install click rich httpx\n"


@pytest.mark.parametrize("command", ["check", "inspect", "convert"])
def test_a_command_needs_only_what_it_uses(command: str) -> None:
    """Who looks at recordings needs no HTTP client; and what is not imported costs no time."""
    options = ["--to", "native"] if command == "convert" else []
    prelude = "import sys; sys.modules['httpx'] = None"
    ran = run_process(command, *options, DATA / "streams" / "01_cumulative_single.sse", prelude=prelude)
    assert (ran.status, ran.err) == (0, "")


def test_another_missing_module_is_not_blamed_on_the_extra() -> None:
    ran = run_process("demo", prelude="import sys; sys.modules['ssefold.transports'] = None")
    assert ran.status == 1
    assert "Traceback" in ran.err


def test_version(run: Run) -> None:
    assert run("--version").out.split()[-1] == ssefold.__version__


def test_every_command_has_examples_in_its_help(run: Run) -> None:
    for name in commands():
        ran = run(name, "--help")
        assert ran.status == 0
        assert f"  ssefold {name}" in ran.out.partition("Examples:")[2]


def test_exit_statuses_are_documented(run: Run) -> None:
    ran = run("--help")
    assert "Exit status:" in ran.out
    page = (DATA.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^ +(\d+)  ", ran.out, re.MULTILINE)
    assert listed == re.findall(r"^\| (\d+) \| ", page, re.MULTILINE) == ["0", "1", "2", "141"]
    assert "Shell completion:" in ran.out


def test_bad_usage_is_status_2(run: Run) -> None:
    assert run("replay").status == 2
    assert run("replay", "no such file").status == 2
    assert run("no-such-command").status == 2


def test_completion_speaks_for_bash() -> None:
    ran = run_process(_SSEFOLD_COMPLETE="bash_source")
    assert ran.status == 0
    assert "_ssefold_completion" in ran.out


def test_a_terminal_without_utf8_gets_escapes_instead_of_a_crash(tmp_path: object) -> None:
    ran = run_process("demo", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.status == 0
    assert "\\u732b" in ran.out or "\\xdc" in ran.out or ran.out.isascii()


def test_the_page_has_every_command_and_option() -> None:
    import click

    page = (DATA.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in commands().items():
        assert f"| [`{name}`](#" in page
        section = re.search(rf"^## (?:[\w-]+ and )?{name}\b.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert section is not None, name
        for option in command.params:
            if isinstance(option, click.Option) and option.name != "json_":
                assert f"`{option.opts[-1]}" in section[0] or f"{option.opts[-1]} " in section[0], (name, option.opts)
