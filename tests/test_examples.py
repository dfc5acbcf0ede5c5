"""Every example of ``docs/examples`` runs as a reader would run it, against a fake server, and is short."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ssefold.transports.testing import FakeSGLang

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
OPTIONAL = {"httpx", "aiohttp", "anyio", "h11", "trio", "fastapi", "uvicorn", "matplotlib"}
#: What the last line that each prints looks like; the gateway serves until it is stopped and has a test of its own.
LAST_LINES = {
    "rollout_httpx": "truncated after 200 tokens, in 2 calls",
    "rollout_aiohttp": "truncated after 100 tokens",
    "rollout_trio": "second: truncated, 300 tokens",
    "sync_script": "'length': 12}",
    "plot_logprobs": "written to logprobs.png",
    "benchmark_client": "itl ms: p50",
}


def needs(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {part for name in names for part in name.removeprefix("ssefold.transports.").split(".")[:1]} & OPTIONAL


def skip_without_its_packages(path: Path) -> None:
    for package in sorted(needs(path)):
        pytest.importorskip(package, reason=f"{path.name} uses {package}")


def load(name: str) -> ModuleType:
    path = ROOT / "docs" / "examples" / f"{name}.py"
    skip_without_its_packages(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tried_and_listed() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == {*LAST_LINES, "gateway_fastapi"}
    page = (ROOT / "docs" / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name}.py)" in page for name in names)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_needs(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    needed = re.search(r"^Needs: pip install ([\w ]+),", ast.get_docstring(tree) or "", re.MULTILINE)
    assert needed is not None
    named = set(needed[1].split())
    assert needs(path) <= named
    assert named <= needs(path) | {"h11"}  # what the transport over anyio imports
    assert "ssefold.transports.testing" in path.read_text(encoding="utf-8")


def test_the_gateway_runs_without_a_url() -> None:
    path = ROOT / "docs" / "examples" / "gateway_fastapi.py"
    skip_without_its_packages(path)
    # Port 8000 may be taken here.
    instead = "uvicorn.run = lambda app, port: print(type(app).__name__, port)"
    code = f"import runpy, sys, uvicorn; {instead}; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "FastAPI 8000\n"), done.stderr


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    path = ROOT / "docs" / "examples" / f"{name}.py"
    skip_without_its_packages(path)
    done = subprocess.run([sys.executable, "-W", "error", str(path)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert LAST_LINES[name] in done.stdout.splitlines()[-1]


def test_the_gateway_passes_bytes_on_untouched_and_logs_what_they_say(caplog: pytest.LogCaptureFixture) -> None:
    gateway = load("gateway_fastapi")
    import asyncio

    import httpx

    payload = {"input_ids": [1, 2, 3], "rid": "r", "stream": True, "sampling_params": {"max_new_tokens": 9}}

    async def ask(app: object, url: str) -> tuple[bytes, bytes]:
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as through,  # type: ignore[arg-type]
            httpx.AsyncClient(trust_env=False) as direct,
        ):
            passed_on = await through.post("http://gateway/generate", json=payload)
            assert passed_on.headers["content-type"].startswith("text/event-stream")
            return passed_on.content, (await direct.post(f"{url}/generate", json=payload)).content

    with FakeSGLang() as server, caplog.at_level("INFO", logger="gateway"):
        passed_on, sent = asyncio.run(ask(gateway.make_app(server.url), server.url))
    assert passed_on == sent
    assert "output 0: 9 tokens, FinishReason(type='length', length=9)" in caplog.text
