"""Mutants of populations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENGINE = "runtime/population/engine.py"
WORKER = "study/population_worker.py"
TESTS = "tests/study/test_populations.py"
WORKER_TESTS = "tests/study/test_population_worker.py"

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
        "    for run in runs:",
        "    for run in [run for run in runs if not run.status.has_ended]:",
        f"{TESTS} -k others_have_ended",
    ),
    Mutant(
        "the runs of several populations start one by one",
        "study/study.py",
        "order=executor.in_order(runs) if isinstance(executor, PopulationExecutor) else None,",
        "order=None,",
        f"{TESTS} -k whole_populations",
    ),
    Mutant(
        "a trial does not know the outcomes of earlier generations",
        "tuning/generations.py",
        "return first if number < first + size else number",
        "return 0",
        "tests/tuning/test_generations.py -k earlier_generations",
    ),
    Mutant(
        "a shared evaluation loses the rows of members that have ended",
        "runtime/population/sharing.py",
        "engine, rows = self._engine, self._rows",
        "engine, rows = self._engine, self._engine.rows_of_members",
        f"{WORKER_TESTS} -k fails_leaves",
    ),
    Mutant(
        "the actions of a member come from the observations of another",
        "runtime/population/collection.py",
        "self._obs.reshape(len(self._rows_of), self._each, -1)",
        "self._obs.reshape(len(self._rows_of), self._each, -1)[::-1]",
        f"{WORKER_TESTS} -k learn_what",
    ),
    Mutant(
        "a population takes a whole GPU",
        "study/populations.py",
        "gpus=min(1.0, sum(need.gpus for need in needs))",
        "gpus=1.0",
        f"{TESTS} -k shares",
    ),
]
