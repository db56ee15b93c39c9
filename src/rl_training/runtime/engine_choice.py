"""Which engine mode a run gets. Importing this loads no torch."""

from __future__ import annotations

from typing import Literal

EngineMode = Literal["eager", "compiled", "cuda_graph"]
EngineChoice = Literal["auto", "eager", "compiled", "cuda_graph"]

WORTH_COMPILING = 50_000
WORTH_A_GRAPH = 20_000
"""Updates from which a run pays its preparation back (docs/performance.md has the figures)."""


def choose_engine(wanted: EngineChoice, device: str, updates: int) -> EngineMode:
    """The mode for a run of so many updates on a kind of device: preparing one takes a while."""
    if wanted != "auto":
        return wanted
    if device == "cuda":
        return "cuda_graph" if updates >= WORTH_A_GRAPH else "eager"
    return "compiled" if device == "cpu" and updates >= WORTH_COMPILING else "eager"
