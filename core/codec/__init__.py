"""A state as bytes, and back."""

from __future__ import annotations

from .container import pack, unpack

__all__ = ["pack", "unpack"]
