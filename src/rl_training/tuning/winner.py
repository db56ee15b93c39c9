"""The best trial: validated on fresh seeds, and written as a config with the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.boundary.writing import write_atomically
from rl_training.boundary.yaml_codec import dump_yaml, yaml_text
from rl_training.experiment.run_directory import now
from rl_training.statistics import Estimate, mean_interval, welch_test
from rl_training.study.folder import report_failed_writes
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.text import counted, printable
from rl_training.tuning.config import BASE_LABEL, TuningPlan, best_label
from rl_training.tuning.judging import best_trial, evaluations, view
from rl_training.tuning.trials import Trial, TrialIndex, TrialStatus
from rl_training.version import __version__

BEST_FILE = "best.yaml"
ESTIMATED = (
    "Scores are estimated from recorded data by fitted Q evaluation. They are not returns, and "
    "policies that leave the data are overestimated: check the policy in the environment before "
    "you rely on it."
)
"""What is said about scores of the objective `fqe`."""
SIGNIFICANT = 0.05
"""Largest p-value of a significant difference."""


@dataclass(frozen=True)
class Validation:
    """Scores of the best trial and of the config that was tuned, on the same fresh seeds."""

    best: Sequence[float]
    base: Sequence[float]

    @property
    def best_mean(self) -> Estimate:
        """Mean score of the best trial with its interval."""
        return mean_interval(self.best)

    @property
    def base_mean(self) -> Estimate:
        """Mean score of the config that was tuned with its interval."""
        return mean_interval(self.base)

    @property
    def is_better(self) -> bool:
        """Whether the best trial has a better mean."""
        return self.best_mean.value > self.base_mean.value

    @property
    def p_value(self) -> float:
        """P-value of the difference, by Welch's t-test."""
        return welch_test([self.best], [self.base]).p_value


def validation(plan: TuningPlan, index: StudyIndex, best: Trial) -> Validation | None:
    """Return the scores on fresh seeds, or None if they are not complete."""
    base = _scores(plan, index, BASE_LABEL)
    label = BASE_LABEL if best.params == plan.own_params else best_label(best.number)
    found = _scores(plan, index, label)
    if base is None or found is None:
        return None
    return Validation(best=found, base=base)


def _scores(plan: TuningPlan, index: StudyIndex, label: str) -> list[float] | None:
    runs = {run.seed: run for run in index if run.label == label}
    scores = [_score(plan, runs.get(seed)) for seed in plan.validation_seeds]
    known = [score for score in scores if score is not None]
    return known if len(known) == len(scores) else None


def _score(plan: TuningPlan, run: StudyRun | None) -> float | None:
    if run is None:
        return None
    return view(run, plan.objective, evaluations(run, plan.objective), None).score


# --- The config ---------------------------------------------------------------------------


def write_best(
    folder: Path, plan: TuningPlan, trials: TrialIndex, best: Trial, found: Validation | None
) -> Path:
    """Write the config with the settings of the best trial; return the file."""
    comments = "".join(f"# {printable(line)}\n" for line in evidence(plan, trials, best, found))
    data = {"algo": plan.config["algo"]} | plan.tuned_config(best.params)
    file = folder / BEST_FILE
    with report_failed_writes(folder):
        write_atomically(file, f"{comments}\n{dump_yaml(data)}".encode())
    return file


def evidence(
    plan: TuningPlan, trials: TrialIndex, best: Trial, found: Validation | None
) -> list[str]:
    """Return lines that say where settings come from, and how good they are."""
    description, objective = plan.description, plan.objective
    states = {
        status.value: len(trials.with_status(status))
        for status in (TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.FAILED)
    }
    return [
        f"Settings of trial {best.number} of {counted(len(trials), 'trial')} ("
        + ", ".join(f"{count} {state}" for state, count in states.items())
        + f"), by rl-training {__version__} on {now()}.",
        f"Sampler: {description.sampler}, pruner: {description.pruner}, seed: {description.seed}.",
        f"Score of a run: {objective.kind.title}; seeds {_listed(description.seeds)}, combined by "
        f"{objective.aggregate}.",
        f"Value of the trial: {number_text(best.value)}. It is the best of many, so it is lucky: "
        "use the scores on fresh seeds.",
        f"Varied: {params_text(best.params)}.",
        *validation_lines(plan, best, found),
    ]


def validation_lines(plan: TuningPlan, best: Trial, found: Validation | None) -> list[str]:
    """Return lines about the scores on fresh seeds."""
    if found is None:
        return ["Not validated on fresh seeds yet."]
    note = [ESTIMATED] if plan.description.objective == "fqe" else []
    seeds = _listed(plan.validation_seeds)
    base = f"{interval_text(found.base_mean)} (the config that was tuned)"
    if best.params == plan.own_params:
        return [f"Fresh seeds {seeds}: {base}. No trial was better than that config.", *note]
    better = "better" if found.is_better else "not better: keep that config"
    if found.is_better and not found.p_value < SIGNIFICANT:
        better += ", but the difference is not significant"
    p_value = "" if math.isnan(found.p_value) else f"; Welch's t-test: p = {found.p_value:.2g}"
    return [
        f"Fresh seeds {seeds}: {interval_text(found.best_mean)} (this trial), {base}{p_value}.",
        f"On fresh seeds, this trial is {better}.",
        *note,
    ]


def params_text(params: Mapping[str, Any]) -> str:
    """Return settings as text."""
    return ", ".join(f"{key}={yaml_text(value)}" for key, value in params.items())


def interval_text(estimate: Estimate) -> str:
    """Return a mean with its interval."""
    if math.isnan(estimate.low):
        return number_text(estimate.value)
    return (
        f"{number_text(estimate.value)} [{number_text(estimate.low)}, {number_text(estimate.high)}]"
    )


def number_text(value: float | None) -> str:
    """Return a score with a few digits."""
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _listed(seeds: Sequence[int]) -> str:
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))) and len(seeds) > 2:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def best_and_validation(
    plan: TuningPlan, index: StudyIndex, trials: TrialIndex
) -> tuple[Trial | None, Validation | None]:
    """Return the best trial and its scores on fresh seeds, as far as they are known."""
    best = best_trial(trials)
    return best, None if best is None else validation(plan, index, best)


def summary(best: Trial | None, found: Validation | None) -> dict[str, Any]:
    """Return the best trial and its scores on fresh seeds as plain data."""
    if best is None:
        return {"best": None, "validation": None}
    plain = {"number": best.number, "params": best.params, "value": best.value}
    if found is None:
        return {"best": plain, "validation": None}
    return {
        "best": plain,
        "validation": {
            "best_scores": list(found.best),
            "base_scores": list(found.base),
            "best_mean": found.best_mean.value,
            "base_mean": found.base_mean.value,
            "p_value": None if math.isnan(found.p_value) else found.p_value,
        },
    }
