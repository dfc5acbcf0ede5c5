"""Lay ``.links/ssefold``, the one folder that an editable install puts on ``sys.path``.

The repository keeps the package in three top-level folders.  Import hooks that map them would be invisible to type
checkers, so an editable install gets links to the real files instead::

    .links/ssefold/errors.py  -> core/errors.py       (each entry of core/ by itself)
    .links/ssefold/transports -> transports/
    .links/ssefold/adapters   -> adapters/

The two folders are one link each and never go stale.  The entries of ``core`` are linked one by one, since the folders
must appear beside them: a file added to ``core`` is seen after ``make links`` (or the next ``pip install -e .``).

Run by the build hook and by ``make links``, so it needs the standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path


def lay(root: Path) -> None:
    """Bring ``.links/ssefold`` up to date; leave alone what is right already."""
    package = root / ".links" / "ssefold"
    package.mkdir(parents=True, exist_ok=True)
    sources = [source for source in (root / "core").iterdir() if not is_litter(source.name)]
    sources += [root / "transports", root / "adapters"]
    wanted = {source.name: source for source in sources}
    for target in package.iterdir():
        # Python keeps its own __pycache__ beside the links; it is not ours to clear.
        if not is_litter(target.name) and (target.name not in wanted or not target.exists()):
            remove(target)
    for name, source in wanted.items():
        if not (package / name).exists():
            link(source, package / name)


def is_litter(name: str) -> bool:
    """Bytecode, and the dotted files that editors and file systems leave about."""
    return name == "__pycache__" or name.startswith(".")


def remove(target: Path) -> None:
    """Remove a link, and nothing behind it."""
    if target.is_dir() and not target.is_symlink():
        target.rmdir()  # a Windows junction, or an empty folder
    else:
        target.unlink(missing_ok=True)


def link(source: Path, target: Path) -> None:
    """Link one file or folder, without needing privileges on Windows."""
    try:
        target.symlink_to(os.path.relpath(source, target.parent), source.is_dir())
    except FileExistsError:
        return  # laid by another run at the same moment
    except OSError:
        if not source.is_dir():
            os.link(source, target)
            return
        from _winapi import CreateJunction  # only Windows gets here

        CreateJunction(str(source), str(target))


if __name__ == "__main__":
    lay(Path(__file__).resolve().parent.parent)
