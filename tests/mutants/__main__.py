"""Run the mutants."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.mutants import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run all mutants, or those that match the words; exit with 1 if one survives."""
    words = sys.argv[1:] or [""]
    chosen = [m for m in MUTANTS if any(w in f"{m.trap} {m.file} {m.tests}" for w in words)]
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("gymnasium", "hypothesis", "pydantic", "torch"):  # once, for all forks
        importlib.import_module(module)
    waiting, survivors = list(reversed(chosen)), 0
    running: dict[int, Attempt] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            attempt = Attempt(waiting.pop())
            running[attempt.pid] = attempt
        pid, status = os.wait()
        attempt = running.pop(pid)
        survivors += (alive := attempt.survived(status))
        print(f"{'SURVIVED' if alive else 'killed  '}  {attempt.mutant.trap}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    sys.exit(survivors > 0)


class Attempt:
    """The tests of a mutant, in a forked process that imports a broken copy of the sources."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._output, copy = folder / "output", folder / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "rl_training" / mutant.file
        text = file.read_text()
        if mutant.old not in text:
            raise SystemExit(f"{mutant.file} has no {mutant.old!r}: bring the mutant up to date")
        file.write_text(text.replace(mutant.old, mutant.new))
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 3
            try:
                status = _run_tests(mutant, copy, self._output)
            finally:
                os._exit(status)

    def survived(self, status: int) -> bool:
        """Return whether the tests pass although the code is broken."""
        code, output = os.waitstatus_to_exitcode(status), self._output.read_text()
        self._folder.cleanup()
        if code not in (0, 1):
            raise SystemExit(f"the tests did not run for {self.mutant.trap!r}:\n{output[-2000:]}")
        return code == 0


def _run_tests(mutant: Mutant, sources: Path, output: Path) -> int:
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(sources)
    sys.path.insert(0, str(sources))
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *mutant.tests.split()]))


if __name__ == "__main__":
    main()
