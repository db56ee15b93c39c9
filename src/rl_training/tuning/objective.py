"""What a tuning optimizes: the score of a run, and the value of a trial over its seeds.

A trial trains one run for each seed. Its value is an aggregate of their scores. While it runs, it
has *points*: after evaluation ``j`` of seed ``k``, point ``k·E + j`` is the aggregate of the scores
of the seeds before ``k`` and of the score of seed ``k`` so far, where ``E`` is the number of
evaluations of a run. So points are comparable between trials, and do not depend on the order in
which runs are trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.experiment.config import TrainConfig
from rl_training.statistics import area_under_curve


@dataclass(frozen=True)
class ScoreKind:
    """How the score of a run is computed; more is better."""

    title: str
    metric: str | None
    """Entry of the evaluations that it uses; None if it is measured after training."""
    so_far: Callable[[Sequence[float], Sequence[float]], float]
    """Returns the score after some evaluations, from their steps and values."""


SCORES: dict[str, ScoreKind] = {
    "last_return": ScoreKind(
        "return of the last evaluation", "eval_return_mean", lambda _, values: values[-1]
    ),
    "best_return": ScoreKind(
        "return of the best evaluation", "eval_return_mean", lambda _, values: max(values)
    ),
    "area_under_curve": ScoreKind(
        "mean return over the evaluations", "eval_return_mean", area_under_curve
    ),
    "fqe": ScoreKind("value estimated by fitted Q evaluation", None, lambda _, values: values[-1]),
}


def _worse_half(scores: Sequence[float]) -> float:
    """Return the mean of the lower half; the median of an odd number of scores is part of it."""
    return float(np.mean(sorted(scores)[: math.ceil(len(scores) / 2)]))


AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "worse_half": _worse_half,
    "mean": lambda scores: float(np.mean(scores)),
    "median": lambda scores: float(np.median(scores)),
    "worst": min,
}


@dataclass(frozen=True)
class Objective:
    """The score of a run, and how the scores of a trial's seeds are combined."""

    score: str
    aggregate: str
    interval: int
    """Steps between evaluations; 0 for one at the end."""
    last_step: int

    @classmethod
    def of(cls, score: str, aggregate: str, config: TrainConfig) -> Objective:
        """Return the objective of runs with a checked config."""
        return cls(score, aggregate, config.parts.controls.eval_interval, config.last_step)

    @property
    def kind(self) -> ScoreKind:
        """How the score of a run is computed."""
        return SCORES[self.score]

    @property
    def per_run(self) -> int:
        """Number of points of each seed."""
        if not self.interval or self.kind.metric is None:
            return 1
        return max(1, math.ceil(self.last_step / self.interval))

    def combine(self, scores: Sequence[float]) -> float:
        """Return the value of a trial with these scores."""
        return AGGREGATES[self.aggregate](scores)

    def score_of(self, values: Mapping[int, float]) -> float | None:
        """Return the score after some evaluations, or None if there are none."""
        steps = sorted(values)
        if not steps:
            return None
        return self.kind.so_far(steps, [values[step] for step in steps])

    def scores_so_far(self, values: Mapping[int, float]) -> list[tuple[int, float]]:
        """Return the score after each evaluation, with the number of the evaluation."""
        steps, found = sorted(values), []
        for count, step in enumerate(steps, start=1):
            number = min(math.ceil(step / self.interval), self.per_run) if self.interval else 1
            known = steps[:count]
            found.append((max(number, 1) - 1, self.kind.so_far(known, [values[s] for s in known])))
        return found
