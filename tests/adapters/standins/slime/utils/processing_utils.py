"""Images as SGLang takes them."""

from __future__ import annotations

import base64
from typing import Any


def encode_image_for_rollout_engine(image: Any) -> str:
    return "data:image/png;base64," + base64.b64encode(image.convert("RGB")).decode("ascii")
