"""Entry point of the ``ssefold`` command: starts it, or says in one line which package is missing.

Nothing but the standard library is imported before it is known to be there; the command itself is ``app.py``.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

_NEEDED = ("click", "rich", "httpx")
_NOT_INSTALLED = 2


def main() -> None:
    """Run the command; what ``ssefold`` and ``python -m ssefold.adapters.cli`` do."""
    for stream in (sys.stdout, sys.stderr):
        # Model text may hold what the terminal's encoding has no sign for.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from .app import app

        app(prog_name="ssefold")  # which imports the subcommand that was asked for
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.stderr.write(f"ssefold: the command needs {missing}: pip install {' '.join(_NEEDED)}\n")
        sys.exit(_NOT_INSTALLED)
