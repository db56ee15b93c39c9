"""Reasons why a run stops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class StopKind(Enum):
    """Kinds of stop reasons."""

    COMPLETED = auto()
    SIGNAL = auto()
    TARGET_REACHED = auto()
    NO_IMPROVEMENT = auto()
    REQUESTED = auto()
    """Any other request, such as from a custom callback."""


_SIGNAL = "signal: "
_EARLY_STOPPING = "early_stopping: "
_PREFIXES = {
    StopKind.COMPLETED: "completed",
    StopKind.SIGNAL: _SIGNAL,
    StopKind.TARGET_REACHED: _EARLY_STOPPING,
    StopKind.NO_IMPROVEMENT: _EARLY_STOPPING,
    StopKind.REQUESTED: "",
}


@dataclass(frozen=True)
class StopReason:
    """A kind and its details; ``str()`` returns the text that is shown and saved."""

    kind: StopKind
    detail: str = ""

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return _PREFIXES[self.kind] + self.detail

    @classmethod
    def parse(cls, text: str) -> StopReason:
        """Parse the text of a checkpoint or a custom callback."""
        if text == _PREFIXES[StopKind.COMPLETED]:
            return COMPLETED
        if text.startswith(_SIGNAL):
            return cls(StopKind.SIGNAL, text.removeprefix(_SIGNAL))
        if text.startswith(_EARLY_STOPPING):
            detail = text.removeprefix(_EARLY_STOPPING)
            reached = re.fullmatch(r"\S+ \S+ reached \S+", detail)
            return cls(StopKind.TARGET_REACHED if reached else StopKind.NO_IMPROVEMENT, detail)
        return cls(StopKind.REQUESTED, text)

    @property
    def is_signal(self) -> bool:
        """Whether the run was interrupted, so that a resume continues it."""
        return self.kind is StopKind.SIGNAL

    @property
    def is_early_stopping(self) -> bool:
        """Whether `early_stopping` stopped the run."""
        return self.kind in (StopKind.TARGET_REACHED, StopKind.NO_IMPROVEMENT)


COMPLETED = StopReason(StopKind.COMPLETED)
