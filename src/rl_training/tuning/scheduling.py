"""Decide which runs of a tuning come next.

Trial ``n`` is proposed from the outcomes of the trials up to ``n − parallel_trials``, in whichever
order they end, and is pruned by comparison with the same trials. So the trials of a tuning depend
only on its description: not on the number of workers, not on how fast they are, and not on how
often the tuning was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rl_training.boundary.locking import is_held
from rl_training.errors import ConfigError
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study.executor import Executor
from rl_training.study.index import StudyRun
from rl_training.study.records import RunStatus
from rl_training.study.resources import Resources
from rl_training.tuning.config import TuningPlan
from rl_training.tuning.folder import TuningSession
from rl_training.tuning.judging import (
    TrialJudge,
    best_trial,
    evaluations,
    failure_reason,
    known_trials,
    view,
)
from rl_training.tuning.optuna_memory import propose
from rl_training.tuning.space import Params
from rl_training.tuning.trials import OutcomeRecord, Trial, TrialIndex, TrialStatus, trial_runs

PRUNED = StopReason(StopKind.REQUESTED, "pruned")
SHARED_SECONDS = 1.0
"""Time between two looks at what other processes have recorded."""


class TrialSource:
    """Proposes trials, hands out their runs, and records their outcomes."""

    def __init__(
        self,
        plan: TuningPlan,
        session: TuningSession,
        executor: Executor,
        *,
        on_outcome: Callable[[Trial], None] = lambda trial: None,
        on_change: Callable[[TrialIndex], None] = lambda trials: None,
        retry_failed: bool = False,
    ) -> None:
        """Create a source.

        Args:
            plan: The tuning.
            session: The session in which trials are recorded.
            executor: Trains the runs.
            on_outcome: Called when a trial has ended.
            on_change: Called after trials and outcomes were recorded.
            retry_failed: Whether to try runs again that have failed too often.
        """
        self._plan = plan
        self._session = session
        self._executor = executor
        self._on_outcome = on_outcome
        self._on_change = on_change
        self._judges: dict[int, TrialJudge] = {}
        self._values: dict[str, dict[int, float]] = {}
        self._busy: set[str] = set()
        """Runs that the coordinator trains or waits for."""
        self._handed_out: set[str] = set()
        """Runs that the coordinator has received at least once."""
        self._failures = {} if retry_failed else _earlier_failures(plan, session)
        self._changed = True
        self._next_look = 0.0
        self._validation: list[StudyRun] | None = None
        self._has_tried_all = False
        own = plan.own_params
        first = [] if own is None else [("config", own)]
        queue = plan.description.first
        self._first = first + [("warm start", params) for params in queue if params != own]
        _check_params(plan, session.trials)
        for trial in session.trials:
            session.restore_group(trial, plan.group(trial.number, trial.params))

    # --- What the coordinator calls -------------------------------------------------------

    @property
    def most_runs_left(self) -> int:
        """Largest number of runs that may still be added."""
        description, trials = self._plan.description, self._session.trials
        planned = [r for t in trials.with_status(TrialStatus.OPEN) for r in self._runs(t)]
        left = max(0, description.trials - len(trials)) * len(description.seeds)
        if self._validation is None:
            left += 2 * len(self._plan.validation_seeds)
        else:
            planned += self._validation
        return left + sum(
            not (self._is_over(run) or run.key in self._handed_out) for run in planned
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether all trials have an outcome, and the best one is validated."""
        return (
            self._validation is not None
            and not self._busy
            and all(map(self._is_over, self._validation))
        )

    def next_runs(self) -> Sequence[StudyRun]:
        """Settle trials that are certain, and return the runs to start now."""
        shared = self._session.is_shared and time.monotonic() >= self._next_look
        if not self._changed and not shared:
            return []
        self._changed = False
        self._next_look = time.monotonic() + SHARED_SECONDS
        with self._session.planning(busy=self._busy):
            if shared:
                self._failures |= _earlier_failures(self._plan, self._session)
            self._settle()
            found = self._choose()
            self._on_change(self._session.trials)
            return found

    def released(self, run: StudyRun) -> None:
        """Take note of the end of a run, or of its last attempt."""
        self._busy.discard(run.key)
        self._values.pop(run.key, None)  # read again from its folder, where they are complete
        if run.status is RunStatus.FAILED:
            self._failures[run.key] = run.reason or "unknown"
        self._changed = True

    def evaluated(self, run: StudyRun, step: int, metrics: Mapping[str, float]) -> None:
        """Take note of an evaluation."""
        metric = self._plan.objective.kind.metric
        if metric is not None and metric in metrics:
            self._values_of(run)[step] = float(metrics[metric])
            self._changed = True

    # --- Outcomes -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Record the outcomes of trials that are certain now."""
        trials = self._session.trials
        for trial in trials.with_status(TrialStatus.OPEN):
            judge = self._judges.get(trial.number)
            if judge is None:
                judge = self._judges[trial.number] = TrialJudge(self._plan, trials, trial)
            runs = self._runs(trial)
            objective = self._plan.objective
            views = [
                view(run, objective, self._values_of(run), self._failures.get(run.key))
                for run in runs
            ]
            outcome = judge.outcome(views)
            if outcome is not None:
                self._record(trial, outcome)
        for trial in trials:  # another process may have recorded the outcome
            if trial.status is not TrialStatus.OPEN and self._busy:
                self._stop(self._runs(trial))

    def _record(self, trial: Trial, outcome: OutcomeRecord) -> None:
        self._session.add_outcome(outcome)
        self._judges.pop(trial.number, None)
        for run in self._runs(trial):
            self._values.pop(run.key, None)
        self._on_outcome(trial)

    def _stop(self, runs: Sequence[StudyRun]) -> None:
        """Stop runs whose results are no longer needed."""
        for run in runs:
            if run.key in self._busy:
                self._executor.stop(PRUNED, run.key)

    def _runs(self, trial: Trial) -> list[StudyRun]:
        return trial_runs(self._session.index, trial, self._plan.description.seeds)

    def _values_of(self, run: StudyRun) -> dict[int, float]:
        """Return the evaluations of a run, from its folder and from its worker's reports."""
        if run.key not in self._values:
            found = evaluations(run, self._plan.objective)
            if not (run.key in self._busy or run.status.has_ended):
                return found  # another process may be training it
            self._values[run.key] = found
        return self._values[run.key]

    # --- Choosing -------------------------------------------------------------------------

    def _choose(self) -> list[StudyRun]:
        """Return as many runs as there is room for: those of the oldest trials first."""
        found: list[StudyRun] = []
        while True:
            run = self._next_run()
            if run is None:
                return found
            need = Resources.from_record(run.group.resources)
            try:
                self._executor.check(need, f"A run of {run.label}")
            except ConfigError as error:
                self._failures[run.key] = str(error)
                self._changed = True
                continue
            if len(self._busy) >= max(1, self._executor.at_once(need)):
                return found
            self._busy.add(run.key)
            self._handed_out.add(run.key)
            found.append(run)

    def _next_run(self) -> StudyRun | None:
        for trial in self._session.trials.with_status(TrialStatus.OPEN):
            for run in self._runs(trial):
                if self._is_ready(run):
                    return run
        proposed = self._propose()
        if proposed is not None:
            return self._runs(proposed)[0]
        return next(filter(self._is_ready, self._validate()), None)

    def _is_ready(self, run: StudyRun) -> bool:
        if run.key in self._busy or self._is_over(run):
            return False
        return not (self._session.is_shared and is_held(run.lock))

    def _is_over(self, run: StudyRun) -> bool:
        return run.status.has_ended or run.key in self._failures

    def _propose(self) -> Trial | None:
        """Add a trial, if enough outcomes of earlier ones are known."""
        description, trials = self._plan.description, self._session.trials
        number = len(trials)
        if number >= description.trials or self._has_tried_all:
            return None
        known = self._known(number)
        if any(trial.status is TrialStatus.OPEN for trial in trials.trials[:known]):
            return None
        origin, params = self._settings(number, known)
        if params is None:
            self._has_tried_all = True
            return None
        self._session.add_trial(number, params, origin, known, self._plan.group(number, params))
        return trials.trials[number]

    def _known(self, number: int) -> int:
        """Return how many trials must have an outcome before a trial is proposed."""
        assert self._plan.description.parallel_trials is not None
        return max(0, number + 1 - self._plan.description.parallel_trials)

    def _settings(self, number: int, known: int) -> tuple[str, Params | None]:
        if number < len(self._first):
            return self._first[number]
        trials = self._session.trials
        params = propose(
            self._plan.space,
            known_trials(trials, known),
            [trial.params for trial in trials.trials[known:]],
            sampler=self._plan.description.sampler,
            seed=self._plan.description.seed,
            number=number,
            is_valid=self._plan.is_valid,
        )
        return "sampler", params

    # --- Validation -----------------------------------------------------------------------

    def _validate(self) -> list[StudyRun]:
        """Return the runs that validate the best trial, once all trials have an outcome."""
        trials = self._session.trials
        wanted = self._plan.description.trials
        if trials.with_status(TrialStatus.OPEN):
            return []
        if len(trials) < wanted and not self._has_tried_all:
            return []
        if self._validation is None:
            best = best_trial(trials)
            groups = [] if best is None else self._plan.validation_groups(best)
            self._validation = self._session.add_groups(groups)
        return self._validation


def _check_params(plan: TuningPlan, trials: TrialIndex) -> None:
    """Reject an index whose trials do not belong to the space."""
    known = [(f"trial {trial.number}", trial.params) for trial in trials]
    known += [(f"a trial of {prior.source}", prior.params) for prior in trials.priors]
    for name, params in known:
        if not plan.space.contains(params):
            raise ConfigError(
                f"{trials.path}: {name} has settings that are not part of the space, so the index "
                "was changed: restore it, or start a new tuning."
            )


def _earlier_failures(plan: TuningPlan, session: TuningSession) -> dict[str, str]:
    """Return the runs that have failed for good in earlier sessions, with the reason."""
    reasons = {run.key: failure_reason(run, plan.description.retries) for run in session.index}
    return {key: reason for key, reason in reasons.items() if reason is not None}
