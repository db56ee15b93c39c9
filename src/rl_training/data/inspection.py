"""Describe a dataset and find problems in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.data.offline_dataset import BOUND_TOLERANCE, TransitionDataset
from rl_training.text import counted
from rl_training.types import EnvSpec

QUARTILES = (0, 25, 50, 75, 100)
SATURATION = 0.999
"""Share of the distance from the center to a bound at which an action counts as saturated."""
JUMP = 1e-4
"""Difference between a next observation and the row after it that counts as a discontinuity."""


@dataclass(frozen=True)
class DatasetReport:
    """Results of an inspection."""

    rows: int
    obs_dim: int
    action_dim: int
    episodes: int
    return_mean: float
    return_quartiles: list[float]
    length_quartiles: list[float]
    action_min: list[float]
    action_max: list[float]
    action_saturation: float
    reward_min: float
    reward_max: float
    reward_mean: float
    terminal_rate: float
    timeout_rate: float
    not_finite: int
    odd_flags: list[str]
    duplicates: int
    discontinuities: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def inspect_dataset(dataset: TransitionDataset) -> DatasetReport:
    """Compute the report of a dataset from all of its rows."""
    statistics = dataset.statistics()
    actions, rewards = dataset.column("actions"), dataset.column("rewards")
    return DatasetReport(
        rows=len(dataset),
        obs_dim=dataset.layout.obs_dim,
        action_dim=dataset.layout.action_dim,
        episodes=len(statistics.returns),
        return_mean=float(statistics.returns.mean()),
        return_quartiles=_quartiles(statistics.returns),
        length_quartiles=_quartiles(statistics.lengths),
        action_min=actions.min(axis=0).tolist(),
        action_max=actions.max(axis=0).tolist(),
        action_saturation=_saturation(actions),
        reward_min=float(rewards.min()),
        reward_max=float(rewards.max()),
        reward_mean=float(rewards.mean(dtype=np.float64)),
        terminal_rate=float((dataset.column("terminations") > 0).mean()),
        timeout_rate=float((dataset.column("truncations") > 0).mean()),
        not_finite=_count_not_finite(dataset),
        odd_flags=list(dataset.odd_flags),
        duplicates=_count_duplicates(dataset),
        discontinuities=len(find_discontinuities(dataset)),
        notes=list(dataset.notes),
    )


def _quartiles(values: npt.NDArray[Any]) -> list[float]:
    return [float(value) for value in np.percentile(values, QUARTILES)]


def _saturation(actions: npt.NDArray[np.float32]) -> float:
    """Return the share of action values at the ends of their range."""
    low, high = actions.min(axis=0), actions.max(axis=0)
    center, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 1e-12)
    return float((np.abs(actions - center) >= SATURATION * half).mean())


def _count_not_finite(dataset: TransitionDataset) -> int:
    return int((~dataset.rows.isfinite()).any(dim=1).sum())


def _count_duplicates(dataset: TransitionDataset) -> int:
    """Count the rows that repeat an earlier one, by a 64-bit hash of their bits."""
    bits = dataset.rows.cpu().numpy().view(np.uint32).astype(np.uint64)
    odd = np.random.default_rng(0).integers(0, 2**63, bits.shape[1], dtype=np.uint64) * 2 + 1
    with np.errstate(over="ignore"):
        keys = (bits * odd).sum(axis=1, dtype=np.uint64)
    return len(keys) - len(np.unique(keys))


def find_discontinuities(dataset: TransitionDataset) -> npt.NDArray[np.int64]:
    """Find rows inside episodes whose next observation differs from the next row's observation."""
    ended = (dataset.column("terminations") + dataset.column("truncations")) > 0
    obs, following = dataset.column("observations"), dataset.column("next_observations")
    scale = np.maximum(1.0, np.abs(obs[1:]))
    apart = (np.abs(following[:-1] - obs[1:]) > JUMP * scale).any(axis=1)
    return np.flatnonzero(apart & ~ended[:-1]).astype(np.int64)


@dataclass(frozen=True)
class Expectation:
    """Spaces and time limit that the data should match, and the environment's name."""

    spec: EnvSpec
    obs_low: npt.NDArray[np.float64]
    obs_high: npt.NDArray[np.float64]
    time_limit: int | None
    name: str


def find_problems(dataset: TransitionDataset, expected: Expectation) -> list[str]:
    """Return every mismatch as one sentence."""
    sizes = dataset.layout.mismatch(expected.spec, "the data", expected.name)
    if sizes is not None:
        return [f"sizes: {sizes}"]
    return [
        *_value_problems(dataset, expected),
        *_action_problems(dataset.column("actions"), expected.spec),
        *_episode_problems(dataset, expected.time_limit),
    ]


def _value_problems(dataset: TransitionDataset, expected: Expectation) -> Iterator[str]:
    bad = _count_not_finite(dataset)
    if bad:
        yield f"not finite: there are NaN or infinite values in {counted(bad, 'row')}."
    for odd in dataset.odd_flags:
        yield f"flags: {odd}."
    obs = dataset.column("observations")
    with np.errstate(invalid="ignore"):
        slack = 1e-3 * np.maximum(1.0, np.abs(obs))
        outside = (obs < expected.obs_low - slack) | (obs > expected.obs_high + slack)
    if outside.any():
        yield (
            f"observations: {counted(int(outside.any(axis=1).sum()), 'row')} outside the "
            f"observation space of {expected.name}, first in entry "
            f"{int(np.argmax(outside.any(axis=0)))}."
        )


def _action_problems(actions: npt.NDArray[np.float32], spec: EnvSpec) -> Iterator[str]:
    if spec.discrete:
        low, high = np.array([[spec.action_start], [spec.action_start + spec.action_dim - 1]])
        slack, fractional = 0.0, actions != np.floor(actions)
    else:
        low, high = np.asarray(spec.action_low), np.asarray(spec.action_high)
        slack, fractional = BOUND_TOLERANCE * (high - low), np.False_
    wrong = (actions < low - slack) | (actions > high + slack) | fractional
    count = int(wrong.any(axis=1).sum())
    if count:
        yield (
            f"actions: {counted(count, 'row')} outside the bounds {low.min():.6g} to "
            f"{high.max():.6g}."
        )


def _episode_problems(dataset: TransitionDataset, limit: int | None) -> Iterator[str]:
    jumps = find_discontinuities(dataset)
    if len(jumps):
        yield (
            f"discontinuities: in {counted(len(jumps), 'row')} inside episodes, the next "
            f"observation differs from the following row, first at row {jumps[0]}. Some episode "
            "ends may not be marked."
        )
    if limit is None:
        return
    bounds = dataset.episode_bounds()
    lengths = np.diff(bounds)
    if (lengths > limit).any():
        yield (
            f"lengths: {counted(int((lengths > limit).sum()), 'episode')} longer than the time "
            f"limit of {limit} steps; the longest has {lengths.max()}. Some episode ends may not "
            "be marked."
        )
    ended = dataset.column("terminations")[bounds[1:] - 1] > 0
    at_limit = int((ended & (lengths == limit)).sum())
    if at_limit and at_limit == int(ended.sum()):
        yield (
            f"terminals: every termination ({at_limit}) is at the time limit of {limit} steps. "
            "Time limits seem to be stored as terminations, which do not bootstrap."
        )
