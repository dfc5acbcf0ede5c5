"""Loading functions by path, one instance per class, and int32 arrays out of ``meta_info``."""

from __future__ import annotations

import base64
import functools
import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np


@functools.cache
def load_function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class SingletonMeta(type):
    _made: dict[type, Any] = {}  # noqa: RUF012

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in cls._made:
            cls._made[cls] = super().__call__(*args, **kwargs)
        return cls._made[cls]

    @classmethod
    def forget(cls) -> None:
        """For tests: the next one is made anew."""
        cls._made.clear()


def decode_int32_meta_array(meta_info: dict[str, Any], keys: str | Iterable[str]) -> Any:
    """The first of these keys that is there, as a flat int32 array; None if there is none or it is null."""
    names = [keys] if isinstance(keys, str) else keys
    value = next((meta_info[name] for name in names if name in meta_info), None)
    if value is None:
        return None
    if isinstance(value, str):
        value = base64.b64decode(value.encode("ascii"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        if not len(value):
            raise ValueError("both buffer length (0) and count (-1) must not be 0")  # what torch.frombuffer does
        return np.frombuffer(bytearray(value), dtype=np.int32)
    return np.asarray(value, dtype=np.int32).reshape(-1)
