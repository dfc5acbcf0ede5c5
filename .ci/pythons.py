"""Print the Pythons of this machine that the library supports, one ``version path`` a line.

A name on ``PATH`` proves nothing: pyenv puts a ``python3.12`` there that only says how to choose a version.  So each
candidate is run, and must say that it is what its name says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter of this version may be: this very one, on ``PATH``, or among pyenv's."""
    yield sys.executable
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for python in sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True):
        yield str(python)


def works(python: str, version: str) -> bool:
    """Whether it starts, is of that version, and can make a virtual environment."""
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def main() -> None:
    """Print those found on standard output, those missing on standard error."""
    for version in SUPPORTED:
        found = next((python for python in candidates(version) if works(python, version)), None)
        if found:
            print(version, found, flush=True)
        else:
            print(f"== Python {version}: not on this machine", file=sys.stderr)


if __name__ == "__main__":
    main()
