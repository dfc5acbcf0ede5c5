"""Recordings sent once more: by ``ssefold serve-fake --recording``, and through a transport by ``replay --through``."""

from __future__ import annotations

from .through import TRANSPORTS, replay_through

__all__ = ["TRANSPORTS", "replay_through"]
