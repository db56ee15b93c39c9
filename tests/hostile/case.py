"""One hostile case: what is written, which command reads it, and what must happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.bases import Bases
from tests.hostile.sandbox import Outcome, Place, Sandbox, assert_safe, error_line

Write = Callable[[Place, Bases], object]
Check = Callable[[Place, Outcome], object]


def nothing(*_: Any) -> None:
    """Change or check nothing."""


@dataclass(frozen=True)
class Case:
    """What must happen when ``command`` meets what ``write`` wrote."""

    name: str
    command: tuple[str, ...]
    """Its words; `{given}`, `{run}`, `{outside}` and the files of the bases are filled in."""
    write: Write = nothing
    codes: tuple[int, ...] = (2,)
    """The exit codes that are right: 2 for a user's error, 1 for a damaged checkpoint, or 0."""
    says: str = ""
    """What the error line, or the output of an accepted command, must contain."""
    base: str | None = None
    """The trained run to copy to `{run}`."""
    env: Mapping[str, str] = field(default_factory=dict)
    small: bool = True
    """Whether the input has less than a megabyte."""
    slow: bool = False
    """Whether a similar case is quick to show the same: it runs with `make test-slow` alone."""
    usage: bool = False
    """Whether the command-line parser rejects it with its own message."""
    check: Check = nothing
    """What else must hold afterwards."""

    @property
    def trains(self) -> bool:
        """Whether its command makes or continues a run."""
        return self.command[0] in ("train", "resume", "finetune")

    @property
    def alone(self) -> bool:
        """Whether it may leave something behind in the process."""
        return (self.trains and 0 in self.codes) or "--import" in self.command


def run_case(case: Case, sandbox: Sandbox, bases: Bases, place: Place) -> None:
    """Write the input, run the command under guard, and compare."""
    if case.base is not None:
        bases.copy(case.base, place)
    if case.trains and not case.name.startswith("modules/"):
        (place.work / "gymnasium_robotics.py").unlink()
    case.write(place, bases)
    words = {
        **{"given": place.given, "run": place.run, "outside": place.outside, "work": place.work},
        **{"data": bases.data, "obs": bases.observation, "bases": bases.folder},
    }
    argv = [word.format(**words) if "{" in word else word for word in case.command]
    env = {name: value.format(**words) for name, value in case.env.items()}
    outcome = sandbox.run(argv, place, env=env, alone=case.alone)
    assert_safe(outcome, place, small=case.small)
    assert outcome.status in case.codes, outcome
    if case.usage:
        assert "Usage: " in outcome.err, outcome.err
        assert case.says in " ".join(outcome.err.replace("│", " ").split())
    elif outcome.status == 0:
        assert case.says in outcome.out + outcome.err, outcome
        assert "Error: " not in outcome.err
    elif "Problem: " not in outcome.out:  # which `data validate` lists, one a line
        assert case.says in error_line(outcome), outcome.err
    case.check(place, outcome)
