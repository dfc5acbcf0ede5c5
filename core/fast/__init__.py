"""The fast path: payloads of a settled output are the bytes of the one before with new values in known places.

``template.py`` learns the places, ``match.py`` folds by them, and what does not fit goes the full path.  It only ever
saves time: ``GenerateDecoder(fast_path=False)`` gives the same results without it.
"""

from __future__ import annotations

from .route import FastPath

__all__ = ["FastPath"]
