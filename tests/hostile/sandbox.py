"""Client of the server: run a command under the guard and check its outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
CPU_SECONDS = 5
BLOCKED_SECONDS = 6.0
"""A process that sleeps this long without using the processor is considered blocked."""
EXTRA_MIB = 1000.0
"""Memory that a command may allocate for less than a megabyte of input."""
COMMANDS = (
    *("train", "resume", "finetune", "evaluate", "predict", "data", "runs", "plot", "configs"),
    *("algorithms", "card", "export"),
)
EVIL = ("gymnasium_robotics", "minari_evil", "evil", "os_evil", "pyarrow", "huggingface_hub")
"""Modules in the current folder that create a marker file when they are imported."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it attempted."""

    status: int
    """Exit code, or the negative number of the signal that killed it."""
    out: str
    err: str
    found: list[str]
    """Operations that the guard stopped."""
    grown_mib: float
    seconds: float


@dataclass(frozen=True)
class Workspace:
    """A case's folders. Only `given` may be written to."""

    root: Path

    @property
    def given(self) -> Path:
        """Input and output folder of the command: data, configs, runs."""
        return self.root / "given"

    @property
    def run(self) -> Path:
        """The case's copy of a trained run."""
        return self.given / "run"

    @property
    def work(self) -> Path:
        """The current folder of the command."""
        return self.root / "work"

    @property
    def outside(self) -> Path:
        """A folder that the command may not change."""
        return self.root / "outside"

    @property
    def precious(self) -> Path:
        """A file that the command may not read or change."""
        return self.outside / "precious.txt"

    @property
    def marker(self) -> Path:
        """A file that is created when a planted module is imported."""
        return self.root / "marker"

    def make(self, evil: Sequence[str] = EVIL) -> Workspace:
        """Create the folders and plant modules in the current folder."""
        for folder in (self.given, self.work, self.outside):
            folder.mkdir()
        self.precious.write_text("precious")
        for name in evil:
            (self.work / f"{name}.py").write_text(
                f"from pathlib import Path\nPath({str(self.marker)!r}).write_text({name!r})\n"
            )
        return self

    def assert_untouched(self) -> None:
        """Assert that no planted code ran and that files outside are unchanged."""
        assert not self.marker.exists(), f"{self.marker.read_text()} was imported"
        assert {file.name for file in self.outside.iterdir()} == {"precious.txt"}
        assert self.precious.read_text() == "precious"
        made = {file.name for file in self.work.iterdir()} - {f"{name}.py" for name in EVIL}
        assert not made, f"{made} in the current folder"


class Sandbox:
    """Sends commands to the server."""

    def __init__(self, folder: Path) -> None:
        """Start the server; libraries write their caches to ``folder``."""
        self._caches = folder
        caches = {
            "HOME": folder,
            "XDG_CACHE_HOME": folder,
            "MPLCONFIGDIR": folder,
            "TMPDIR": folder,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.server"],
            cwd=REPOSITORY,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}
            | {name: str(path) for name, path in caches.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        argv: Sequence[str],
        workspace: Workspace,
        *,
        env: Mapping[str, str] | None = None,
        alone: bool = False,
        benign: bool = False,
        probe: str = "",
        cpu_seconds: int = CPU_SECONDS,
        blocked_seconds: float = BLOCKED_SECONDS,
    ) -> Outcome:
        """Run ``rl-training ARGV`` in a workspace."""
        streams = [workspace.root / "out", workspace.root / "err"]
        reply = self._ask(
            {
                "argv": list(argv),
                "group": group_of(argv),
                "cwd": str(workspace.work),
                "env": {"MINARI_DATASETS_PATH": str(workspace.given / "minari")} | dict(env or {}),
                "writable": [str(workspace.given), str(self._caches)],
                "secret": [str(workspace.outside)],
                "streams": [str(file) for file in streams],
                "alone": alone,
                "benign": benign,
                "probe": probe,
                "cpu_seconds": cpu_seconds,
                "blocked_seconds": blocked_seconds,
            }
        )
        out, err = (file.read_text(errors="replace") for file in streams)
        reply.pop("imported", None)
        return Outcome(out=out, err=err, **reply)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def close(self) -> None:
        """Stop the server."""
        self._process.communicate(timeout=60)


def group_of(argv: Sequence[str]) -> str:
    """Return the command in a command line; imports are recorded per command."""
    start = next((workspace for workspace, word in enumerate(argv) if word in COMMANDS), len(argv))
    words = argv[start : start + (2 if argv[start : start + 1] == ["data"] else 1)]
    return " ".join(words)


# --- Checks -------------------------------------------------------------------


def assert_safe(outcome: Outcome, workspace: Workspace, *, small: bool = True) -> None:
    """Assert that a command did nothing forbidden and did not crash, hang or waste memory."""
    assert outcome.found == [], f"{outcome.found}: {outcome.err}"
    assert outcome.status >= 0, f"killed by signal {-outcome.status}: {outcome.err}"
    assert "Traceback" not in outcome.err + outcome.out, outcome.err
    if small:
        assert outcome.grown_mib < EXTRA_MIB, f"grew by {outcome.grown_mib:.0f} MiB"
    for text in (outcome.out, outcome.err):
        assert_printable(text)
    workspace.assert_untouched()


def assert_printable(text: str) -> None:
    """Assert that the text has no control characters, which could change the terminal."""
    odd = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
    assert not odd, f"{odd} reach the terminal: {text!r}"


def error_line(outcome: Outcome) -> str:
    """Return the single error line of a rejected input."""
    lines = [line for line in outcome.err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, f"{len(lines)} error lines: {outcome.err}"
    assert len(lines[0]) < 1000, lines[0]
    return lines[0]
