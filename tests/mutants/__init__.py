"""Mutation tests: break the code on purpose and check that a test fails.

    python -m tests.mutants [WORD ...]

Each mutant changes one place in a copy of the sources, and its tests must fail. With words, only
the mutants whose trap, file or tests contain one of them are run. Every module of this package
lists the mutants of one area.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    mutant
    for module in pkgutil.iter_modules(__path__)
    if module.name not in ("__main__", "mutant")
    for mutant in import_module(f"{__name__}.{module.name}").MUTANTS
]
