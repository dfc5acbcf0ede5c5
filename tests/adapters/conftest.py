"""Fixtures of the adapters' tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ssefold.adapters import miles as miles_adapter
from ssefold.adapters import slime as slime_adapter
from ssefold.adapters.miles import attempts

STANDINS = Path(__file__).parent / "standins"
SLIMES = (
    "rollout.sglang_rollout",
    "rollout.sglang_streaming_rollout",
    "rollout.streaming_utils",
    "utils.types",
    "utils.http_utils",
    "utils.misc",
)

MILES = (
    "rollout.base_types",
    "rollout.generate_utils.generate_endpoint_utils",
    "rollout.generate_hub.single_turn",
    "utils.http_utils",
    "utils.types",
)


@pytest.fixture(autouse=True)
def _no_leftovers() -> None:
    """Some versions of monkeypatch put back what they found by asking, which must not outlive its test."""
    for adapter, names in ((slime_adapter, slime_adapter._SLIMES), (miles_adapter, miles_adapter._MILES)):
        for name in names.keys() & vars(adapter).keys():
            delattr(adapter, name)


@pytest.fixture(scope="session")
def slime_modules() -> dict[str, ModuleType]:
    """The stand-in's modules, loaded once and taken out of ``sys.modules`` again."""
    pytest.importorskip("numpy", reason="the stand-in for slime has NumPy arrays where slime has torch tensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STANDINS))
        for name in (*SLIMES, "utils.processing_utils", "observability.trace_utils"):
            importlib.import_module(f"slime.{name}")
    names = [name for name in sys.modules if name.partition(".")[0] == "slime"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def slime(slime_modules: dict[str, ModuleType]) -> Iterator[SimpleNamespace]:
    """The stand-in for slime, importable as ``slime``, as new; its modules by their last name."""
    modules: dict[str, Any] = {name: slime_modules[f"slime.{name}"] for name in SLIMES}
    rollout, http, misc = (modules[name] for name in ("rollout.sglang_rollout", "utils.http_utils", "utils.misc"))
    with pytest.MonkeyPatch.context() as patch:
        for name, module in slime_modules.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(http, "_http_client", None)
        patch.setattr(rollout, "GenerateState", rollout.GenerateState)
        misc.SingletonMeta.forget()
        by_name = {name.rpartition(".")[2]: module for name, module in modules.items()}
        yield SimpleNamespace(**by_name, Sample=by_name["types"].Sample)


@pytest.fixture(scope="session")
def miles_modules() -> dict[str, ModuleType]:
    """As ``slime_modules``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STANDINS))
        for name in MILES:
            importlib.import_module(f"miles.{name}")
    names = [name for name in sys.modules if name.partition(".")[0] == "miles"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def miles(miles_modules: dict[str, ModuleType]) -> Iterator[SimpleNamespace]:
    """The stand-in for miles, importable as ``miles``, as new; its modules by their last name."""
    modules: dict[str, Any] = {name.rpartition(".")[2]: miles_modules[f"miles.{name}"] for name in MILES}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in miles_modules.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(modules["http_utils"], "_http_client", None)
        patch.setattr(modules["http_utils"], "_distributed_post_enabled", False)
        patch.setattr(attempts, "PAUSE", 0)
        yield SimpleNamespace(**modules, Sample=modules["types"].Sample)
