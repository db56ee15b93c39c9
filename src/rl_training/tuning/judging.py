"""Decide what becomes of a trial, from the evaluations of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_training.experiment.run_directory import now
from rl_training.runtime.logging import read_metrics
from rl_training.study.index import StudyRun
from rl_training.study.records import RunStatus
from rl_training.tuning.config import TuningPlan
from rl_training.tuning.objective import Objective
from rl_training.tuning.optuna_memory import KnownTrial, PruningJudge
from rl_training.tuning.trials import OutcomeRecord, Trial, TrialIndex, TrialStatus


@dataclass(frozen=True)
class RunView:
    """What is known about a run of a trial."""

    values: Mapping[int, float] = field(default_factory=dict)
    """Its evaluations by step."""
    has_ended: bool = False
    score: float | None = None
    """Score of a run that has ended, unless it follows from the evaluations."""
    failure: str | None = None
    """Why it has failed for good."""


def evaluations(run: StudyRun, objective: Objective) -> dict[int, float]:
    """Return the evaluations in the folder of a run by step."""
    metric = objective.kind.metric
    if metric is None or not run.path.is_dir():
        return {}
    return {int(row["step"]): float(row[metric]) for row in read_metrics(run.path) if metric in row}


def view(
    run: StudyRun, objective: Objective, values: Mapping[int, float], failure: str | None
) -> RunView:
    """Return what is known about a run."""
    if not run.status.has_ended:
        return RunView(values, failure=failure)
    found = run.results.get("fqe") if objective.kind.metric is None else objective.score_of(values)
    return RunView(values, has_ended=True, score=None if found is None else float(found))


def known_trials(index: TrialIndex, count: int) -> list[KnownTrial]:
    """Return the trials of earlier tunings, and the first ones of this tuning."""
    found = [
        KnownTrial(prior.params, prior.status, prior.value, prior.points) for prior in index.priors
    ]
    return found + [
        KnownTrial(trial.params, trial.status, trial.value, trial.points)
        for trial in index.trials[:count]
    ]


class TrialJudge:
    """Follows one trial until its outcome is certain.

    The outcome depends only on the evaluations of its runs, and on the outcomes of the trials that
    were known when it was proposed.
    """

    def __init__(self, plan: TuningPlan, index: TrialIndex, trial: Trial) -> None:
        self._objective = plan.objective
        self._trial = trial
        self._points: dict[int, float] = {}
        self._pruning = PruningJudge(
            plan.space,
            plan.objective,
            known_trials(index, trial.known),
            trial.params,
            pruner=plan.description.pruner,
        )

    def outcome(self, runs: Sequence[RunView]) -> OutcomeRecord | None:
        """Return the outcome, or None if it is still open; ``runs`` are in the order of seeds."""
        objective, scores = self._objective, list[float]()
        last_point = len(runs) * objective.per_run - 1
        for position, run in enumerate(runs):
            for number, score in self._so_far(run):
                point = position * objective.per_run + number
                if point in self._points:
                    continue
                self._points[point] = value = objective.combine([*scores, score])
                if point < last_point and self._pruning.prunes(point, value):
                    return self._record(TrialStatus.PRUNED, scores, value)
            if run.failure is not None:
                return self._record(TrialStatus.FAILED, scores, reason=run.failure)
            if not run.has_ended:
                return None
            if run.score is None:
                reason = "a run has ended without a score"
                return self._record(TrialStatus.FAILED, scores, reason=reason)
            scores.append(run.score)
        return self._record(TrialStatus.COMPLETE, scores, objective.combine(scores))

    def _so_far(self, run: RunView) -> list[tuple[int, float]]:
        """Return the scores of a run so far, with the number of each evaluation."""
        if self._objective.kind.metric is not None:
            return self._objective.scores_so_far(run.values)
        return [] if run.score is None else [(0, run.score)]

    def _record(
        self,
        status: TrialStatus,
        scores: Sequence[float],
        value: float | None = None,
        reason: str | None = None,
    ) -> OutcomeRecord:
        return OutcomeRecord.model_validate(
            {
                "number": self._trial.number,
                "status": status.value,
                "value": value,
                "scores": list(scores),
                "points": {str(point): value for point, value in sorted(self._points.items())},
                "reason": reason,
                "time": now(),
            }
        )


def best_trial(index: TrialIndex) -> Trial | None:
    """Return the trial with the best value; of several, the first one."""
    complete = [t for t in index if t.status is TrialStatus.COMPLETE and t.value is not None]
    return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


def failure_reason(run: StudyRun, retries: int) -> str | None:
    """Return why a run has failed for good in an earlier session, or None."""
    if run.status is not RunStatus.FAILED:
        return None
    same = [failure for failure in run.failures if failure.step == run.failures[-1].step]
    return run.reason or "unknown" if len(same) > retries else None
