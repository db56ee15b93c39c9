"""Exports that are imported on first use, so that importing the package does not load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A module's ``__getattr__`` and ``__dir__``: ``homes`` maps a name to ``module[:name]``."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        return getattr(import_module(f"{package}.{module}"), attribute or name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
