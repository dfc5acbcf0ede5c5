"""Print the matrix as a table."""

from __future__ import annotations

import sys

from tests.core.corruption.matrix import table

sys.stdout.write("\n".join(table()) + "\n")
