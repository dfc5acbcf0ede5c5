"""Check a folder that holds a fresh sdist and the wheel made from it: every source file must be in both.

A build back end that loses a folder does so without a word, and a fresh clone never shows it (the link tree of an
editable install is what confuses it), so the artefacts themselves are looked at.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"core": "ssefold", "transports": "ssefold/transports", "adapters": "ssefold/adapters"}


def main(dist: Path) -> int:
    """Return the number of files missing, after naming them."""
    [wheel] = dist.glob("ssefold-*.whl")
    [sdist] = dist.glob("ssefold-*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}

    missing: list[str] = []
    for folder, package in PACKAGES.items():
        for source in sorted((ROOT / folder).rglob("*")):
            path = source.relative_to(ROOT / folder).as_posix()
            if source.suffix not in {".py", ".pyi", ".typed"}:
                continue
            missing += [f"{wheel.name}: {package}/{path}"] * (f"{package}/{path}" not in in_wheel)
            missing += [f"{sdist.name}: {folder}/{path}"] * (f"{folder}/{path}" not in in_sdist)
    if missing:
        print("missing from what was built:", *missing, sep="\n  ", file=sys.stderr)
    else:
        print(f"{wheel.name} and {sdist.name} hold every file of {', '.join(PACKAGES)}")
    return len(missing)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)
