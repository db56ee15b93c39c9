"""Exports that are imported on first use, so that importing the package does not load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

EXPORTS: dict[str, dict[str, tuple[str, str]]] = {}
"""For each package its public names, each with its module and its name there."""


def lazy_exports(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's ``__getattr__``, ``__dir__`` and ``__all__``.

    ``names`` maps a submodule to what is exported from it, as an import statement would write it:
    ``"name"`` or ``"name as other"``. Type checkers read the same from `generated/*.pyi`.
    """
    homes = EXPORTS[package] = {}
    for module, exported in names.items():
        for name in exported:
            original, _, alias = name.partition(" as ")
            homes[alias or original] = (f"{package}.{module}", original)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = homes[name]
        return getattr(import_module(module), original)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, listed, sorted(homes)
