"""What an adapter takes from its framework, looked up when it is used.

Nothing of a framework is imported before it is called, and everything can be replaced by setting it as an attribute of
the adapter's module, as the frameworks' own tests do.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


class Lookup:
    """Finds a framework's functions and modules by name.

    :param names: where the adapter's attributes live: ``globals()`` of its module.
    :param homes: the modules that something may live in, the newest first; a module itself has its own name as home.
    """

    def __init__(self, framework: str, repository: str, names: Mapping[str, Any], homes: Mapping[str, tuple[str, ...]]):
        self._framework = framework
        self._repository = repository
        self._names = names
        self._homes = homes

    def __getitem__(self, name: str) -> Any:
        """What was set on the adapter's module, else the framework's own, as it is now."""
        return self._names[name] if name in self._names else self.own(name)

    def optional(self, name: str) -> Any:
        """The same for what a version of the framework may not have; None then."""
        try:
            return self[name]
        except (ModuleNotFoundError, AttributeError):
            return None

    def own(self, name: str) -> Any:
        """The framework's own.

        :raises AttributeError: no such name is taken from the framework, or its module lacks it.
        :raises ModuleNotFoundError: the framework is not installed.
        """
        homes = self._homes.get(name)
        if homes is None:
            raise AttributeError(f"module 'ssefold.adapters.{self._framework}' has no attribute {name!r}")
        for home in homes:
            try:
                module = import_module(home)
            except ModuleNotFoundError as error:
                if error.name is not None and f"{home}.".startswith(f"{error.name}."):
                    continue
                raise
            return module if home.endswith(f".{name}") else getattr(module, name)
        raise ModuleNotFoundError(
            f"ssefold.adapters.{self._framework} needs {self._framework} for {name}, and {homes[0]} cannot be imported."
            f" Install {self._framework} from its own repository ({self._repository}); a package of that name on PyPI"
            " is another project",
            name=homes[0],
        )
