"""Cases that fail until the package is fixed.

Each is expected to fail and reported as soon as it passes: remove it here then. `HANGS` are those
that take too long until they are fixed: they are not run.
"""

from __future__ import annotations

HANGS: frozenset[str] = frozenset()
PENDING: frozenset[str] = frozenset()
