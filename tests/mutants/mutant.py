"""A mutant: one broken place in the sources, and the tests that notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change to one source line, and the tests that must fail."""

    trap: str
    file: str
    old: str
    new: str
    tests: str
