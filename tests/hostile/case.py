"""A hostile case: the input, the command that reads it, and the expected outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.bases import Bases
from tests.hostile.sandbox import Outcome, Sandbox, Workspace, assert_safe, error_line

Write = Callable[[Workspace, Bases], object]
Check = Callable[[Workspace, Outcome], object]


def do_nothing(*_: Any) -> None:
    """Do nothing: the default of `Case.write` and `Case.check`."""


@dataclass(frozen=True)
class Case:
    """The expected outcome when ``command`` reads what ``write`` wrote."""

    name: str
    command: tuple[str, ...]
    """Arguments; `{given}`, `{run}`, `{outside}` and the base files are filled in."""
    write: Write = do_nothing
    codes: tuple[int, ...] = (2,)
    """Allowed exit codes: 2 for a user error, 1 for a damaged checkpoint, 0 for success."""
    message: str = ""
    """Text that the error line, or the output of a successful command, must contain."""
    base: str | None = None
    """The trained run to copy to `{run}`."""
    env: Mapping[str, str] = field(default_factory=dict)
    small: bool = True
    """Whether the input is smaller than a megabyte."""
    slow: bool = False
    """Whether a faster case covers the same behavior; slow cases run only in `make test-slow`."""
    usage: bool = False
    """Whether the command-line parser rejects it with its own message."""
    check: Check = do_nothing
    """Further checks of the outcome."""

    @property
    def trains(self) -> bool:
        """Whether its command creates or continues a run."""
        return self.command[0] in ("train", "resume", "finetune")

    @property
    def alone(self) -> bool:
        """Whether it needs a separate process because it may change global state."""
        return (self.trains and 0 in self.codes) or "--import" in self.command


def run_case(case: Case, sandbox: Sandbox, bases: Bases, workspace: Workspace) -> None:
    """Write the input, run the command under the guard, and check the outcome."""
    if case.base is not None:
        bases.copy(case.base, workspace)
    if case.trains and not case.name.startswith("modules/"):
        (workspace.work / "gymnasium_robotics.py").unlink()
    case.write(workspace, bases)
    words = {
        **{
            "given": workspace.given,
            "run": workspace.run,
            "outside": workspace.outside,
            "work": workspace.work,
        },
        **{"data": bases.data, "obs": bases.observation, "bases": bases.folder},
    }
    argv = [word.format(**words) if "{" in word else word for word in case.command]
    env = {name: value.format(**words) for name, value in case.env.items()}
    outcome = sandbox.run(argv, workspace, env=env, alone=case.alone)
    assert_safe(outcome, workspace, small=case.small)
    assert outcome.status in case.codes, outcome
    if case.usage:
        assert "Usage: " in outcome.err, outcome.err
        assert case.message in " ".join(outcome.err.replace("│", " ").split())
    elif outcome.status == 0:
        assert case.message in outcome.out + outcome.err, outcome
        assert "Error: " not in outcome.err
    elif "Problem: " not in outcome.out:  # `data validate` lists problems, one per line
        assert case.message in error_line(outcome), outcome.err
    case.check(workspace, outcome)
