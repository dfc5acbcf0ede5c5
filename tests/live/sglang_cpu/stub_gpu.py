"""Stand-ins for the GPU packages that SGLang imports, on a machine without them.

``setup.sh`` installs this with a ``.pth`` file, so that each of the server's processes has it.  A package of ``ROOTS``
that can not be found is imported as a module whose attributes are all stand-ins; whoever only asks whether it is there
(``importlib.util.find_spec``) is told the truth.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

ROOTS = {
    "compressed_tensors", "cuda", "cutlass", "decord", "deep_ep", "deep_gemm", "deepseek_recipe", "flash_attn",
    "flash_mla", "flashinfer", "humming", "kernels", "quack", "sgl_kernel", "smg_grpc_proto", "smg_grpc_servicer",
    "soundfile", "tilelang", "timm", "tml_renderers", "torch_memory_saver", "torchaudio", "torchcodec", "torchvision",
    "tvm_ffi", "xgrammar",
}  # fmt: skip


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        value = f"{cls.__name__}.{name}"
        setattr(cls, name, value)
        return value


class _AnyClass(metaclass=_AnyAttribute):
    def __init_subclass__(cls, **_: Any) -> None:
        super().__init_subclass__()

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class StandIn(types.ModuleType):
    """A module, function, decorator, type or value: whatever is wanted of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: MutableSequence[str] = []
        self.__package__ = name
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        is_class = name[:1].isupper() and not name.isupper()
        value: Any = type(name, (_AnyClass,), {"__module__": self.__name__}) if is_class else StandIn(full)
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_AnyClass,)

    def __or__(self, other: Any) -> type:
        return object

    def __ror__(self, other: Any) -> type:
        return object

    def __getitem__(self, key: Any) -> StandIn:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last to be asked, for packages that nobody else has."""

    def __init__(self) -> None:
        self._first = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] not in ROOTS or _is_probe():
            return None
        if self._first:
            self._first = False
            _let_transformers_look()
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _is_probe() -> bool:
    """Was it ``importlib.util.find_spec`` that asked?"""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        name = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_filename.endswith("util.py") or (frame.f_code.co_name == "find_spec" and "util" in name):
            return True
        frame = frame.f_back
    return False


def _let_transformers_look() -> None:
    """It remembers what is there: once, and while the truth can still be found."""
    with suppress(Exception):
        utilities = import_module("transformers.utils.import_utils")
        for name in dir(utilities):
            if name.startswith("is_") and name.endswith("_available"):
                with suppress(Exception):
                    getattr(utilities, name)()


sys.meta_path.append(Finder())
