"""``ssefold demo``: a rollout that is cut, resumed and compared, and the model that generates it."""

from __future__ import annotations

from .model import demo_model

__all__ = ["demo_model"]
