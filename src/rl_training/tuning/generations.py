"""Propose trials in generations, whose runs train as populations.

A program that is running cannot get more members, so all trials of a generation are proposed
before any of its runs starts, from the outcomes of the earlier generations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rl_training.boundary.locking import is_held
from rl_training.study.index import StudyRun
from rl_training.study.population_executor import PopulationExecutor
from rl_training.study.populations import population_kind
from rl_training.tuning.config import TuningPlan
from rl_training.tuning.folder import TuningSession
from rl_training.tuning.optuna_memory import STARTUP_TRIALS
from rl_training.tuning.scheduling import TrialSource
from rl_training.tuning.trials import TrialStatus

GENERATION = STARTUP_TRIALS
"""Number of trials in a generation by default: the ones that are random anyway."""


class GenerationSource(TrialSource):
    """Hands out all runs of a population at once, one population after another."""

    def __init__(
        self,
        plan: TuningPlan,
        session: TuningSession,
        executor: PopulationExecutor,
        *,
        on_waiting: Callable[[StudyRun], None] = lambda run: None,
        **options: Any,
    ) -> None:
        """Create a source.

        Args:
            plan: The tuning.
            session: The session in which trials are recorded.
            executor: Trains the populations.
            on_waiting: Called with a run that another process is still training.
            **options: Other arguments of `TrialSource`.
        """
        super().__init__(plan, session, executor, **options)
        self._populations = executor
        self._on_waiting = on_waiting

    def _known(self, number: int) -> int:
        """Return the first trial of the generation, since earlier ones are known.

        It follows from the recorded trials, so that a generation keeps its trials if
        `parallel_trials` changes.
        """
        trials, size = self._session.trials.trials, self._plan.description.parallel_trials
        assert size is not None
        first = trials[-1].known if trials else 0
        return first if number < first + size else number

    def _choose(self) -> list[StudyRun]:
        """Return the runs of the next population, once the one before has ended."""
        if self._busy:
            return []
        while self._propose() is not None:
            pass
        closed = [trial for trial in self._session.trials if trial.status is not TrialStatus.OPEN]
        stopped = {run.key for trial in closed for run in self._runs(trial)}
        for population in self._populations.form(self._generation()):
            found = [run for run in population if run.key not in stopped and self._is_ready(run)]
            held = [run for run in found if is_held(run.lock)]
            if held:  # by a worker of a coordinator that was killed, which saves a checkpoint
                self._on_waiting(held[0])
                self._changed = True
                return []
            if found:
                self._busy |= {run.key for run in found}
                self._handed_out |= self._busy
                return found
        return []

    def _generation(self) -> list[StudyRun]:
        """Return the runs of the current generation, or those of the validation at the end.

        They include runs that have ended, which keep their rows in the programs.
        """
        trials = self._session.trials
        unsettled = trials.with_status(TrialStatus.OPEN)
        if not unsettled:
            return list(self._validate())
        known = unsettled[0].known
        return [run for trial in trials if trial.known == known for run in self._runs(trial)]


def separating_keys(plan: TuningPlan) -> list[str]:
    """Return the keys of the space whose values cannot differ within a population."""

    def kinds(key: str, values: Iterable[Any]) -> set[str]:
        return {population_kind(plan.run_config({key: value}).to_dict()) for value in values}

    return [
        key
        for key, dimension in plan.space.dimensions.items()
        if len(kinds(key, dimension.probes())) > 1
    ]
