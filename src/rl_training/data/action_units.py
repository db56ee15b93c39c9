"""Recorded actions: checked against the bounds of an environment, and mapped to [-1, 1]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.boundary.columns import CHUNK_ROWS, Column
from rl_training.errors import ConfigError
from rl_training.types import MASK_FIELDS, EnvSpec

BOUND_TOLERANCE = 1e-3
"""An action up to this share of its range outside its bounds is clipped, not rejected."""

Actions = npt.NDArray[np.float32]


def check_actions(chunks: Iterable[Actions], spec: EnvSpec, source: str) -> None:
    """Reject actions in the environment's units that are outside its bounds."""
    if spec.discrete:
        _check_indices(chunks, spec, source)
        return
    low = np.asarray(spec.action_low, dtype=np.float32)
    high = np.asarray(spec.action_high, dtype=np.float32)
    least, greatest = action_range(chunks, len(low))
    slack = BOUND_TOLERANCE * (high - low)
    if (least < low - slack).any() or (greatest > high + slack).any():
        place = int(np.argmax(np.maximum(low - least, greatest - high)))
        raise ConfigError(
            f"{source}: action {place} ranges from {least[place]:.6g} to {greatest[place]:.6g}, "
            f"outside its bounds {low[place]:.6g} to {high[place]:.6g}."
        )


def _check_indices(chunks: Iterable[Actions], spec: EnvSpec, source: str) -> None:
    first, last, start = spec.first_actions, spec.last_actions, 0
    for actions in chunks:
        valid = (actions >= first) & (actions <= last) & (actions == np.floor(actions))
        if not valid.all():
            row, place = (int(index) for index in np.argwhere(~valid)[0])
            number = f"number {place} of the action" if spec.action_choices else "the action"
            raise ConfigError(
                f"{source}: {number} in row {start + row} is {actions[row, place]:g}, but should "
                f"be an integer from {first[place]} to {last[place]}."
            )
        start += len(actions)


def check_masks(
    columns: Mapping[str, Column], spec: EnvSpec, source: str, *, first_action: int
) -> None:
    """Reject action masks of another size, and recorded actions that they do not allow."""
    size = spec.mask_width
    for name in [name for name in MASK_FIELDS if name in columns]:
        start, actions = 0, columns["actions"].chunks(CHUNK_ROWS)
        for masks, chunk in zip(columns[name].chunks(CHUNK_ROWS), actions, strict=False):
            masks = masks.reshape(len(masks), -1)
            if masks.shape[1] != size or not np.isin(masks, (0, 1)).all():
                raise ConfigError(
                    f"{source}: an action mask should have {size} values, each 0 or 1, but the "
                    f"data has masks of {masks.shape[1]} from {masks.min():g} to {masks.max():g}."
                )
            taken = np.clip(chunk.reshape(-1, 1).astype(np.int64) - first_action, 0, size - 1)
            illegal = np.flatnonzero(np.take_along_axis(masks, taken, axis=1)[:, 0] == 0)
            if name == "legal_actions" and len(illegal):
                raise ConfigError(
                    f"{source}: the action in row {start + illegal[0]} is illegal by its action "
                    "mask: correct the data, or ignore the masks with "
                    "env_kwargs.action_masks=false."
                )
            start += len(masks)


def action_range(chunks: Iterable[Actions], size: int) -> tuple[Actions, Actions]:
    """Return the smallest and the largest value of each of ``size`` action dimensions."""
    least = np.full(size, np.inf, dtype=np.float32)
    greatest = -least
    for actions in chunks:
        least = np.minimum(least, actions.min(axis=0))
        greatest = np.maximum(greatest, actions.max(axis=0))
    return least, greatest


def within_bounds(
    spec: EnvSpec, low: Sequence[float], high: Sequence[float], source: str
) -> EnvSpec:
    """Return a spec whose policies choose actions from ``low`` to ``high`` only.

    Raises:
        ConfigError: The range does not fit the actions, or is outside their bounds.
    """
    name = f"action_range of {source}"
    if spec.discrete:
        raise ConfigError("action_range applies to continuous actions: leave it out.")
    if len(low) != spec.action_dim or len(high) != spec.action_dim:
        raise ConfigError(
            f"{name}: it has {len(low)} and {len(high)} values, but an action has "
            f"{spec.action_dim}."
        )
    for place, (least, most) in enumerate(zip(low, high, strict=True)):
        first, last = spec.action_low[place], spec.action_high[place]
        if not first <= least < most <= last:
            raise ConfigError(
                f"{name}: action {place} has the range {least:.6g} to {most:.6g}, which is not "
                f"inside its bounds {first:.6g} to {last:.6g}."
            )
    return replace(spec, action_low=tuple(low), action_high=tuple(high))


def data_range(
    chunks: Iterable[npt.NDArray[Any]], spec: EnvSpec
) -> tuple[list[float], list[float]]:
    """Return the range of recorded actions inside the bounds of an environment.

    An action that is always the same keeps its bounds, since a range of one value cannot be scaled.
    """
    columns = (chunk.reshape(len(chunk), -1).astype(np.float32) for chunk in chunks)
    least, most = action_range(columns, spec.action_dim)
    low: list[float] = []
    high: list[float] = []
    for place in range(spec.action_dim):
        bounds = spec.action_low[place], spec.action_high[place]
        found = max(float(least[place]), bounds[0]), min(float(most[place]), bounds[1])
        first, last = found if found[0] < found[1] else bounds
        low.append(first)
        high.append(last)
    return low, high


def map_actions(actions: Actions, spec: EnvSpec) -> None:
    """Map actions in the environment's units to [-1, 1] or to indices, in place."""
    if spec.discrete:
        actions -= spec.first_actions.astype(actions.dtype)
        return
    low = np.asarray(spec.action_low, dtype=np.float32)
    high = np.asarray(spec.action_high, dtype=np.float32)
    actions -= 0.5 * (low + high)
    actions /= 0.5 * (high - low)
    np.clip(actions, -1.0, 1.0, out=actions)
