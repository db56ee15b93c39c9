"""Mutants of populations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENGINE = "runtime/population/engine.py"
WORKER = "study/population_worker.py"
TESTS = "tests/study/test_populations.py"

MUTANTS = [
    Mutant(
        "updates of other members change a member that rests",
        ENGINE,
        "            tensor[resting] = rows",
        "            pass",
        f"{TESTS} -k resumes_exactly",
    ),
    Mutant(
        "a member that joins in the middle of a block draws other rows",
        ENGINE,
        "            member.rewind()",
        "            pass",
        "tests/runtime/population/test_engine.py -k take_turns",
    ),
    Mutant(
        "a member ahead of the others is not waited for",
        WORKER,
        "turn = [member for member in members if member.session.state.step == step]",
        "turn = list(members)",
        f"{TESTS} -k resumes_exactly",
    ),
    Mutant(
        "populations depend on which runs have ended",
        "study/populations.py",
        "    for run in index:",
        "    for run in [run for run in index if not run.status.has_ended]:",
        f"{TESTS} -k others_have_ended",
    ),
]
