"""``python -m ssefold.adapters.cli``."""

from . import main

main()
