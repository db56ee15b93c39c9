"""Curves of run folders: read their metrics, and group them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rl_training.algorithms.registry import get_algorithm
from rl_training.config_model import Trait, keys_with
from rl_training.curves import EVALUATION_RETURN, Curve, env_steps, online_rows, seconds
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.run_directory import is_run, read_config_file, runs_hint
from rl_training.runtime.logging import read_metrics
from rl_training.text import shorten, shown

Axis = Literal["steps", "updates", "time"]
GroupBy = Literal["config", "algo", "run"]

IGNORED_KEYS = {
    *("seed", "checkpoint_interval", "log_interval", "eval_interval"),
    *("keep_checkpoints", *keys_with(Trait.LABEL, TrainConfig)),
}
"""Keys in which runs of one group may differ."""


@dataclass
class Run:
    """A run folder and its config."""

    path: Path
    config: TrainConfig = field(init=False)

    def __post_init__(self) -> None:
        if not is_run(self.path):
            raise ConfigError(f"{str(self.path)!r} is not a run{runs_hint(self.path)}.")
        self.config = read_config_file(self.path)

    @property
    def is_offline(self) -> bool:
        """Whether the run learns only from recorded data."""
        return self.config.mode == "offline"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config as a flat mapping, without the keys that may differ within a group."""
        flat = _flatten(self.config.resolved().to_dict())
        return {key: value for key, value in flat.items() if key not in IGNORED_KEYS}

    @property
    def algorithm(self) -> str:
        """Name of the algorithm for legends."""
        name = get_algorithm(self.config.algo).short_name
        return f"{name}, fine-tuned" if self.config.finetunes else name

    def curve(self, metric: str, axis: Axis) -> Curve:
        """Return a metric over environment steps, updates or seconds.

        For an offline run, ``"steps"`` are updates.

        Raises:
            ConfigError: The run does not have the metric, or did not record its number of updates.
        """
        found = Curve.of(
            (self._position(row, axis), float(row[metric])) for row in self._rows() if metric in row
        )
        if not len(found):
            raise ConfigError(self._missing(metric))
        return found

    def _rows(self) -> list[Mapping[str, Any]]:
        """Return the rows of this run, without the rows copied from the source of fine-tuning."""
        rows = read_metrics(self.path)
        if self.config.mode == "offline_to_online":
            return list(online_rows(rows, self.config.online_from))
        return list(rows)

    def _position(self, row: Mapping[str, Any], axis: Axis) -> float:
        """Return a row's position on the axis, or NaN if it was not recorded."""
        if axis == "time":
            return seconds(row)
        if axis == "updates" and not self.is_offline:
            steps, updates = self._updates
            return float(np.interp(row["step"], steps, updates, left=math.nan, right=math.nan))
        return env_steps(row)

    @cached_property
    def _updates(self) -> tuple[list[int], list[float]]:
        """Steps and update counts of the training rows; evaluation rows have no counts."""
        counts = {row["step"]: float(row["updates"]) for row in self._rows() if "updates" in row}
        if not counts:
            raise ConfigError(
                f"{self.path} did not record its number of updates: use --x steps or --x time."
            )
        return list(counts), list(counts.values())

    def _missing(self, metric: str) -> str:
        found = {name for row in self._rows() for name in row}
        if metric in found:
            return f"{self.path}: no value of {metric!r} can be plotted on this axis."
        if metric == EVALUATION_RETURN:
            message = f"{self.path} was never evaluated in an environment."
        else:
            message = f"{self.path} has no metric {shown(metric)}."
        found -= {"step", "time/seconds"}
        if not found:
            return f"{message} It has no metrics yet."
        return f"{message} Its metrics: {shorten(', '.join(sorted(found)), 600)}."


def evaluations(run: str | Path) -> tuple[list[int], list[float]]:
    """Return the steps and mean returns of a run's evaluations.

    The steps are environment steps, or updates for an offline run. For an offline-to-online run,
    they are counted from the start of collection.
    """
    curve = Run(Path(run)).curve(EVALUATION_RETURN, "steps")
    return [int(x) for x in curve.x], curve.y.tolist()


@dataclass
class RunGroup:
    """Runs that are plotted as one line."""

    runs: list[Run]
    label: str = ""

    @property
    def is_offline(self) -> bool:
        """Whether all runs of the group are offline."""
        return all(run.is_offline for run in self.runs)

    @property
    def size(self) -> str:
        """Number of seeds, or of runs if a seed occurs twice."""
        count = len(self.runs)
        seeds = {run.config.seed for run in self.runs}
        what = "seed" if len(seeds) == count else "run"
        return f"{count} {what}{'s' if count > 1 else ''}"


def group_runs(runs: Sequence[Run], by: GroupBy) -> list[RunGroup]:
    """Group runs, in the order of each group's first run, and label the groups.

    Args:
        runs: The runs.
        by: ``"config"`` groups runs that differ only in their seed, ``"algo"`` groups the runs of
            one algorithm, and ``"run"`` plots a line for each run.
    """
    if by not in get_args(GroupBy):
        raise ConfigError(f"by = {shown(by)}: should be one of {', '.join(get_args(GroupBy))}.")
    groups: dict[Any, RunGroup] = {}
    for run in runs:
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        keys = {"config": settings, "algo": (run.algorithm, run.is_offline), "run": run.path}
        groups.setdefault(keys[by], RunGroup([])).runs.append(run)
    found = list(groups.values())
    labels = _run_labels(found) if by == "run" else _config_labels(found, by)
    for group, label in zip(found, labels, strict=True):
        group.label = label
    return found


def _run_labels(groups: Sequence[RunGroup]) -> list[str]:
    return unique_names([group.runs[0].path for group in groups])


def _config_labels(groups: Sequence[RunGroup], by: GroupBy) -> list[str]:
    """Return labels: the algorithm, and the settings that differ between its groups."""
    labels = []
    for group in groups:
        first = group.runs[0]
        rivals = [g.runs[0] for g in groups if g.runs[0].algorithm == first.algorithm]
        settings = [run.settings for run in rivals]
        differing = [
            key
            for key in first.settings
            if any(repr(other.get(key)) != repr(first.settings[key]) for other in settings)
        ]
        shown_keys = differing[:3] if by == "config" else []
        words = [first.algorithm]
        words += [f"{key}={_short(first.settings[key])}" for key in shown_keys]
        labels.append(", ".join(words))
    if len(set(labels)) < len(labels):  # more settings differ than a label shows
        names = _run_labels(groups)
        labels = [
            label if labels.count(label) == 1 else f"{label} ({name})"
            for label, name in zip(labels, names, strict=True)
        ]
    return labels


def _short(value: Any) -> str:
    if isinstance(value, str) and "/" in value:
        return shorten(Path(value).name, 30)
    return shorten(str(value), 30)


def _flatten(data: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested settings: ``algo_kwargs.gamma`` becomes ``gamma``."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flatten(value) if isinstance(value, dict) and value else {key: value}
    return flat


def unique_names(places: Sequence[Path]) -> list[str]:
    """Return the folder names, with as many parent folders as needed to make them unique."""

    def tail(place: Path, length: int) -> tuple[str, ...]:
        return place.parts[-length:]

    names = []
    for place in places:
        length = 1
        while sum(tail(other, length) == tail(place, length) for other in places) > 1:
            length += 1
        names.append(str(Path(*tail(place, length))))
    return names
