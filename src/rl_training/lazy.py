"""Import exports on first use, so that importing the package does not load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

EXPORTS: dict[str, dict[str, tuple[str, str]]] = {}
"""Public names of each package, with the module and the name in that module."""


def lazy_exports(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, ``__dir__`` and ``__all__``.

    ``names`` maps a submodule to its exports in the syntax of an import statement: ``"name"`` or
    ``"name as other"``. Type checkers use `generated/*.pyi` instead.
    """
    locations = EXPORTS[package] = {}
    for module, exported in names.items():
        for name in exported:
            original, _, alias = name.partition(" as ")
            locations[alias or original] = (f"{package}.{module}", original)

    def load(name: str) -> Any:
        if name not in locations:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = locations[name]
        return getattr(import_module(module), original)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *locations})

    return load, listed, sorted(locations)
