"""Describe a dataset and find problems in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.boundary.columns import CHUNK_BYTES
from rl_training.data.action_units import BOUND_TOLERANCE, action_range
from rl_training.data.column_names import OBSERVATIONS
from rl_training.data.recorded import FloatRows, RecordedData
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
    entries: list[str]
    """Entries of an observation; none for flat vectors."""
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
    advice: list[str] = field(default_factory=list)
    """What may make learning fail, and which setting helps."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def inspect_dataset(dataset: RecordedData) -> DatasetReport:
    """Compute the report of a dataset from all of its rows."""
    statistics = dataset.statistics()
    rewards = dataset.column("rewards")
    low, high = action_range(_actions(dataset), dataset.layout.action_dim)
    return DatasetReport(
        rows=len(dataset),
        entries=[str(entry) for entry in dataset.entries],
        obs_dim=dataset.obs_dim,
        action_dim=dataset.layout.action_dim,
        episodes=len(statistics.returns),
        return_mean=float(statistics.returns.mean()),
        return_quartiles=_quartiles(statistics.returns),
        length_quartiles=_quartiles(statistics.lengths),
        action_min=low.tolist(),
        action_max=high.tolist(),
        action_saturation=_saturation(dataset, low, high),
        reward_min=float(rewards.min()),
        reward_max=float(rewards.max()),
        reward_mean=float(rewards.mean(dtype=np.float64)),
        terminal_rate=float((dataset.column("terminations") > 0).mean()),
        timeout_rate=float((dataset.column("truncations") > 0).mean()),
        not_finite=_count_not_finite(dataset),
        odd_flags=list(dataset.findings.odd_flags),
        duplicates=_count_duplicates(dataset),
        discontinuities=len(find_discontinuities(dataset)),
        notes=list(dataset.notes),
    )


def _actions(dataset: RecordedData) -> Iterator[FloatRows]:
    for chunk in dataset.chunks():
        yield chunk[:, dataset.layout.slices["actions"]]


def _quartiles(values: npt.NDArray[Any]) -> list[float]:
    return [float(value) for value in np.percentile(values, QUARTILES)]


def _saturation(dataset: RecordedData, low: FloatRows, high: FloatRows) -> float:
    """Return the share of action values at the ends of their range."""
    center, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 1e-12)
    found = 0
    for actions in _actions(dataset):
        found += int(np.count_nonzero(np.abs(actions - center) >= SATURATION * half))
    return found / (len(dataset) * len(low))


def _count_not_finite(dataset: RecordedData) -> int:
    return sum(int((~np.isfinite(rows)).any(axis=1).sum()) for rows in dataset.chunks())


def _count_duplicates(dataset: RecordedData) -> int:
    """Count the rows that repeat an earlier one, by a 64-bit hash of their bits."""
    keys = np.concatenate([hash_rows(rows.view(np.uint32)) for rows in _comparable(dataset)])
    return len(keys) - len(np.unique(keys))


def _comparable(dataset: RecordedData) -> Iterator[FloatRows]:
    """Yield rows that are equal for equal transitions: equal images have equal numbers."""
    if dataset.frames is None:
        yield from dataset.chunks()
        return
    keys = np.concatenate([hash_rows(pixels) for pixels in dataset.frames.chunks()])
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    numbers = first[same].astype(np.float32)
    for chunk in dataset.chunks():
        rows = chunk.copy()
        for name in ("observations", "next_observations"):
            places = rows[:, dataset.layout.slices[name]][:, dataset.vector_dim :]
            places[:] = numbers[places.astype(np.int64)]
        yield rows


def hash_rows(values: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row."""
    rng = np.random.default_rng(0)
    odd = rng.integers(0, 2**63, values.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.empty(len(values), dtype=np.uint64)
    step = max(1, CHUNK_BYTES // (8 * values.shape[1]))
    for start in range(0, len(values), step):
        chunk = values[start : start + step].astype(np.uint64)
        with np.errstate(over="ignore"):
            keys[start : start + step] = (chunk * odd).sum(axis=1, dtype=np.uint64)
    return keys


def find_discontinuities(dataset: RecordedData) -> npt.NDArray[np.int64]:
    """Find rows inside episodes whose next observation differs from the next row's observation."""
    ended = (dataset.column("terminations") + dataset.column("truncations")) > 0
    parts: list[npt.NDArray[np.bool_]] = []
    before: FloatRows | None = None
    for chunk in dataset.chunks():
        rows = chunk if before is None else np.concatenate([before, chunk])
        parts.append(differing_rows(dataset, rows)[:-1])
        before = chunk[-1:]
    apart = np.concatenate([*parts, [False]])
    return np.flatnonzero(apart & ~ended).astype(np.int64)


def differing_rows(dataset: RecordedData, rows: FloatRows) -> npt.NDArray[np.bool_]:
    """Return which of consecutive rows have another next observation than the row after them."""
    obs_place, next_place = (dataset.layout.slices[name] for name in OBSERVATIONS)
    apart = _differ(rows[:-1, next_place], rows[1:, obs_place], dataset.vector_dim)
    return np.concatenate([apart, [False]])


def _differ(following: FloatRows, obs: FloatRows, size: int) -> npt.NDArray[np.bool_]:
    """Return which observations differ; all but the first ``size`` values number frames."""
    scale = np.maximum(1.0, np.abs(obs[:, :size]))
    apart = (np.abs(following[:, :size] - obs[:, :size]) > JUMP * scale).any(axis=1)
    return np.asarray(apart | (following[:, size:] != obs[:, size:]).any(axis=1))


@dataclass(frozen=True)
class Expectation:
    """Spaces and time limit that the data should match, and the environment's name."""

    spec: EnvSpec
    obs_low: npt.NDArray[np.floating[Any]]
    obs_high: npt.NDArray[np.floating[Any]]
    time_limit: int | None
    name: str


def find_problems(dataset: RecordedData, expected: Expectation) -> list[str]:
    """Return every mismatch as one sentence."""
    sizes = dataset.layout.mismatch(expected.spec, "the data", expected.name)
    if sizes is not None:
        return [f"sizes: {sizes}"]
    return [
        *_value_problems(dataset, expected),
        *_action_problems(dataset, expected.spec),
        *_episode_problems(dataset, expected.time_limit),
    ]


def _value_problems(dataset: RecordedData, expected: Expectation) -> Iterator[str]:
    bad = _count_not_finite(dataset)
    if bad:
        yield f"not finite: there are NaN or infinite values in {counted(bad, 'row')}."
    for odd in dataset.findings.odd_flags:
        yield f"flags: {odd}."
    vectors = ... if dataset.frames is None else dataset.frames.layout.vector_columns
    low, high = expected.obs_low[vectors], expected.obs_high[vectors]
    rows, wrong = 0, np.zeros(dataset.vector_dim, dtype=bool)
    for obs in dataset.vectors():
        with np.errstate(invalid="ignore"):
            slack = 1e-3 * np.maximum(1.0, np.abs(obs))
            outside = (obs < low - slack) | (obs > high + slack)
        rows, wrong = rows + int(outside.any(axis=1).sum()), wrong | outside.any(axis=0)
    if rows:
        yield (
            f"observations: {counted(rows, 'row')} outside the observation space of "
            f"{expected.name}, first in entry {int(np.argmax(wrong))}."
        )


def _action_problems(dataset: RecordedData, spec: EnvSpec) -> Iterator[str]:
    if spec.discrete:
        low, high = np.asarray(spec.first_actions), np.asarray(spec.last_actions)
    else:
        low, high = np.asarray(spec.action_low), np.asarray(spec.action_high)
    slack = 0.0 if spec.discrete else BOUND_TOLERANCE * (high - low)
    count = 0
    for actions in _actions(dataset):
        wrong = (actions < low - slack) | (actions > high + slack)
        if spec.discrete:
            wrong |= actions != np.floor(actions)
        count += int(wrong.any(axis=1).sum())
    if count:
        yield (
            f"actions: {counted(count, 'row')} outside the bounds {low.min():.6g} to "
            f"{high.max():.6g}."
        )


def _episode_problems(dataset: RecordedData, limit: int | None) -> Iterator[str]:
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
