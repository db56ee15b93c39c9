"""Why a run stops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class StopKind(Enum):
    """The causes that the code tells apart."""

    COMPLETED = auto()
    SIGNAL = auto()
    TARGET_REACHED = auto()
    NO_IMPROVEMENT = auto()
    REQUESTED = auto()
    """Any other request, of a user's callback for instance."""


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
    """A cause and its details. ``str()`` gives the text that users and files get."""

    kind: StopKind
    detail: str = ""

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return _PREFIXES[self.kind] + self.detail

    @classmethod
    def parse(cls, text: str) -> StopReason:
        """The reason that a checkpoint or a user's callback gives as text."""
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
        """Whether the run was interrupted: a resume continues it."""
        return self.kind is StopKind.SIGNAL

    @property
    def is_early_stopping(self) -> bool:
        """Whether `early_stopping` ended the run."""
        return self.kind in (StopKind.TARGET_REACHED, StopKind.NO_IMPROVEMENT)


COMPLETED = StopReason(StopKind.COMPLETED)
