"""Tests are one package, so that they share helpers: ``from tests.strategies import ...``.

Pytest imports it by path (``--import-mode=importlib``), so the repository's root stays off ``sys.path``, where it would
let ``import core`` load a second copy of the library.
"""
