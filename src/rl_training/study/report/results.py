"""What the runs of one or more studies have achieved: their learning curves and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rl_training.curves import EVALUATION_RETURN, Curve, Values, env_steps, online_rows, seconds
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.generated.catalog import ALGORITHMS
from rl_training.runtime.logging import read_metrics
from rl_training.scores import Reference, reference_returns
from rl_training.statistics import area_under_curve
from rl_training.study.index import StudyGroup, StudyIndex, StudyRun
from rl_training.study.records import RunStatus
from rl_training.text import counted, shown

EVALUATION_LOSS = "eval_loss"

ScoreKind = Literal["last", "best", "area"]
SCORE_NAMES: dict[ScoreKind, str] = {
    "last": "last evaluation",
    "best": "best evaluation",
    "area": "mean over training (area under the curve)",
}

_MODES = {entry["name"]: entry["mode"] for entry in ALGORITHMS}


@dataclass(frozen=True)
class RunCurve:
    """The evaluations of a run."""

    steps: Values
    seconds: Values
    """Training time; NaN if it was not recorded."""
    values: Values

    @property
    def over_steps(self) -> Curve:
        """The values over environment steps, or over updates for an offline run."""
        return Curve(self.steps, self.values)

    @cached_property
    def over_time(self) -> Curve:
        """The values over seconds of training; empty if the time was not recorded."""
        return Curve.of(zip(self.seconds.tolist(), self.values.tolist(), strict=True))


@dataclass
class RunResult:
    """A run of a study, under the label that the report uses."""

    run: StudyRun
    label: str
    curve: RunCurve | None = None
    """None if the run has not been evaluated."""
    score: float | None = None
    """None unless the run has ended and was evaluated."""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.run.task

    @property
    def has_ended(self) -> bool:
        """Whether the run is complete."""
        return self.run.status.has_ended


@dataclass
class StudyResults:
    """The runs of one or more studies, grouped by label and task."""

    studies: Sequence[StudyIndex]
    metric: str
    score: ScoreKind
    runs: list[RunResult] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)
    """Reference returns of the tasks that have some."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know about the data."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower value of the metric is better."""
        return self.metric == EVALUATION_LOSS or self.metric.startswith("loss/")

    @cached_property
    def labels(self) -> list[str]:
        """All labels, in the order in which they were planned."""
        return list(dict.fromkeys(result.label for result in self.runs))

    @cached_property
    def tasks(self) -> list[str]:
        """All tasks, in the order in which they were planned."""
        return list(dict.fromkeys(result.task for result in self.runs))

    @cached_property
    def groups(self) -> dict[tuple[str, str], list[RunResult]]:
        """The runs of each label on each task."""
        groups: dict[tuple[str, str], list[RunResult]] = {}
        for result in self.runs:
            groups.setdefault((result.label, result.task), []).append(result)
        return groups

    def of(self, label: str, task: str) -> list[RunResult]:
        """Return the runs of a label on a task."""
        return self.groups.get((label, task), [])

    def scores(self, label: str, task: str) -> Values:
        """Return the scores of the runs that have ended, as recorded."""
        found = (result.score for result in self.of(label, task))
        return np.array([score for score in found if score is not None], dtype=np.float64)

    def compared_scores(self, label: str, task: str) -> Values:
        """Return the scores that are compared across tasks: normalized, if that is possible."""
        scores, reference = self.scores(label, task), self.references.get(task)
        return scores if reference is None else reference.normalized(scores)

    def compared_curve(self, result: RunResult) -> Values:
        """Return the values of a curve, normalized if that is possible."""
        assert result.curve is not None
        reference = self.references.get(result.task)
        values = result.curve.values
        return values if reference is None else reference.normalized(values)

    def drawn(self, label: str, task: str) -> list[RunResult]:
        """Return the runs whose mean is drawn: those that have ended, or else those in progress."""
        known = [result for result in self.of(label, task) if result.curve is not None]
        ended = [result for result in known if result.has_ended]
        if ended:
            return ended
        return [result for result in known if result.run.status is not RunStatus.FAILED]


# --- Reading ----------------------------------------------------------------------


class CurveCache:
    """Curves of runs by their folder; those of runs that have ended are read only once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str], tuple[object, RunCurve | None]] = {}

    def read(self, run: StudyRun, metric: str, start: int | None) -> RunCurve | None:
        """Return the evaluations of a run."""
        key, state = (run.path, metric), (run.status, run.attempts)
        known = self._known.get(key)
        if known is not None and run.status.has_ended and known[0] == state:
            return known[1]
        curve = read_curve(run.path, metric, start)
        self._known[key] = (state, curve)
        return curve


def read_results(
    paths: Sequence[str | Path],
    *,
    metric: str | None = None,
    score: ScoreKind = "last",
    references: Mapping[str, Reference] | None = None,
    cache: CurveCache | None = None,
) -> StudyResults:
    """Read the results of one or more studies.

    Args:
        paths: Folders of studies.
        metric: A metric in ``metrics.jsonl``; by default the evaluation return, or the held-out
            loss if no run was evaluated in an environment.
        score: What counts of each run's curve: its last value, its best one, or its mean.
        references: Reference returns by task or environment; they override the packaged ones.
        cache: Curves that were read before.

    Raises:
        ConfigError: A folder is not a study, or a study is given twice.
    """
    if score not in get_args(ScoreKind):
        raise ConfigError(f"score = {shown(score)}: should be one of last, best, area.")
    folders = [Path(path) for path in paths]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError(f"A study is compared with itself: {shown(str(folders[-1]))}.")
    studies = [StudyIndex.open(folder) for folder in folders]
    cache = cache or CurveCache()
    wanted = metric or EVALUATION_RETURN
    results = _read(studies, wanted, score, cache)
    if metric is None and not any(result.curve for result in results.runs):
        losses = _read(studies, EVALUATION_LOSS, score, cache)
        results = losses if any(result.curve for result in losses.runs) else results
    if metric is not None and not any(result.curve for result in results.runs):
        raise ConfigError(
            f"No run of {', '.join(str(study.path) for study in studies)} has the metric "
            f"{shown(metric)}: use a name in metrics.jsonl, such as {EVALUATION_RETURN}."
        )
    if results.metric == EVALUATION_RETURN:
        results.references = _references(studies, references or {})
    return results


def _read(
    studies: Sequence[StudyIndex], metric: str, score: ScoreKind, cache: CurveCache
) -> StudyResults:
    results = StudyResults(studies, metric, score)
    suffixes = distinguishing_names(studies)
    shared = _shared_labels(studies)
    for study, suffix in zip(studies, suffixes, strict=True):
        starts = {folder: online_start(group) for folder, group in study.groups.items()}
        for run in study:
            label = f"{run.label} ({suffix})" if run.label in shared else run.label
            result = RunResult(run, label)
            if run.status is not RunStatus.PLANNED:
                result.curve = cache.read(run, metric, starts[run.group.folder])
            result.score = _score(result, results)
            results.runs.append(result)
        if study.damaged_lines:
            results.notes.append(
                f"{counted(study.damaged_lines, 'damaged line')} in the index of {study.name} "
                "skipped: some runs may be missing or out of date."
            )
    if not results.runs:
        damaged = sum(study.damaged_lines for study in studies)
        lines = f", but {counted(damaged, 'damaged line')} in its index" if damaged else " yet"
        raise ConfigError(f"{studies[0].path} has no runs{lines}: nothing to report.")
    results.notes += _task_differences(studies)
    return results


def read_curve(run_dir: Path, metric: str, start: int | None) -> RunCurve | None:
    """Return a metric of a run, or None if it has no finite value.

    ``start`` is the step at which collection starts in an offline-to-online run, else None.
    """
    try:
        rows: Iterator[Mapping[str, Any]] = read_metrics(run_dir, metric)
        rows = rows if start is None else online_rows(rows, start)
        found = {
            env_steps(row): (seconds(row), float(row[metric])) for row in rows if metric in row
        }
    except RLTrainingError:  # the file is a link or too large; the report names runs without one
        return None
    known = {step: pair for step, pair in found.items() if np.isfinite(pair[1])}
    if not known:
        return None
    steps = np.array(sorted(known), dtype=np.float64)
    pairs = np.array([known[step] for step in steps], dtype=np.float64)
    return RunCurve(steps, pairs[:, 0], pairs[:, 1])


def is_offline(group: StudyGroup) -> bool:
    """Return whether the runs of a group learn only from recorded data."""
    return _MODES.get(str(group.config.get("algo"))) == "offline"


def online_start(group: StudyGroup) -> int | None:
    """Return the step at which the runs of a group start to collect, after an offline phase."""
    if _MODES.get(str(group.config.get("algo"))) != "offline_to_online":
        return None
    from rl_training.experiment.config import saved_config

    return saved_config(group.config).online_from


def _score(result: RunResult, results: StudyResults) -> float | None:
    run = result.run
    if not run.status.has_ended:
        return None
    if result.curve is None:
        kind = {EVALUATION_RETURN: "return", EVALUATION_LOSS: "loss"}.get(results.metric)
        found = run.results.get(f"{results.score}_{kind}")
        return None if found is None or not np.isfinite(found) else float(found)
    values = result.curve.values
    if results.score == "area":
        return area_under_curve(result.curve.steps, values)
    if results.score == "best":
        return float(values.min() if results.lower_is_better else values.max())
    return float(values[-1])


# --- Names and references -----------------------------------------------------------


def distinguishing_names(studies: Sequence[StudyIndex]) -> list[str]:
    """Return a name for each study: its own, or its folder if two have the same."""
    names = [study.name or study.path.name for study in studies]
    if len(set(names)) == len(names):
        return names
    folders = [study.path.resolve().name for study in studies]
    if len(set(folders)) == len(folders):
        return folders
    return [str(study.path) for study in studies]


def _shared_labels(studies: Sequence[StudyIndex]) -> set[str]:
    """Return labels that occur in more than one study: they may stand for different code."""
    every = [label for study in studies for label in study.labels]
    return {label for label in every if every.count(label) > 1} if len(studies) > 1 else set()


def _references(
    studies: Sequence[StudyIndex], custom: Mapping[str, Reference]
) -> dict[str, Reference]:
    found: dict[str, Reference] = {}
    for study in studies:
        for group in study.groups.values():
            kwargs = group.config.get("algo_kwargs") or {}
            for name in (group.task, group.config.get("env_id"), kwargs.get("dataset_id")):
                reference = reference_returns(name, custom) if isinstance(name, str) else None
                if reference is not None:
                    found.setdefault(group.task, reference)
                    break
    return found


def _task_differences(studies: Sequence[StudyIndex]) -> list[str]:
    """Return a note for each task whose environment is not the same in all studies."""
    from rl_training.study.naming import TRAINING_ENV_KEYS

    notes: list[str] = []
    known: dict[str, tuple[str, Any]] = {}
    for study in studies if len(studies) > 1 else ():
        for group in study.groups.values():
            kwargs = group.config.get("env_kwargs") or {}
            own = {key: value for key, value in kwargs.items() if key not in TRAINING_ENV_KEYS}
            env = (group.config.get("env_id"), repr(sorted(own.items())))
            first = known.setdefault(group.task, (study.name, env))
            if first[1] != env:
                notes.append(
                    f"The task {group.task} has another environment in {study.name} than in "
                    f"{first[0]}: its scores may not be comparable."
                )
    return list(dict.fromkeys(notes))
