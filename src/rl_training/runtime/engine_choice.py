"""Choice of the engine mode. Importing this module does not load torch."""

from __future__ import annotations

from typing import Literal

EngineMode = Literal["eager", "compiled", "cuda_graph"]
EngineChoice = Literal["auto", "eager", "compiled", "cuda_graph"]

COMPILE_FROM_UPDATES = 50_000
GRAPH_FROM_UPDATES = 20_000
"""Numbers of updates from which the preparation pays off (docs/performance.md)."""


def choose_engine(wanted: EngineChoice, device: str, updates: int) -> EngineMode:
    """Return the engine mode of a run; compilation pays off only for long runs."""
    if wanted != "auto":
        return wanted
    if device == "cuda":
        return "cuda_graph" if updates >= GRAPH_FROM_UPDATES else "eager"
    return "compiled" if device == "cpu" and updates >= COMPILE_FROM_UPDATES else "eager"
