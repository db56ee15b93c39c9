"""Learn from earlier tunings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.text import counted
from rl_training.tuning.config import COMPARED_KEYS, TuningConfig, TuningPlan
from rl_training.tuning.folder import read_tuning
from rl_training.tuning.space import Params, config_value
from rl_training.tuning.trials import PriorRecord, Trial, TrialIndex, TrialStatus

FIRST = 5
"""Number of settings to try first, from each tuning whose values cannot be compared."""


@dataclass
class WarmStart:
    """What a tuning takes from earlier ones."""

    priors: list[PriorRecord] = field(default_factory=list)
    """Trials whose values can be compared: the sampler and the pruner learn from them."""
    first: list[Params] = field(default_factory=list)
    """Settings to try first."""
    lines: list[str] = field(default_factory=list)
    """What was taken, for people."""


def read_warm_start(folders: Sequence[str | os.PathLike[str]], plan: TuningPlan) -> WarmStart:
    """Return what a tuning can learn from earlier ones.

    The trials of a tuning with the same config, seeds and objective are taken as they are. Of any
    other tuning, such as one with a smaller budget, the best settings are tried first.

    Raises:
        ConfigError: A folder is not a tuning, or nothing in it belongs to the space.
    """
    found = WarmStart()
    for folder in map(Path, folders):
        index, description = read_tuning(folder)
        if is_comparable(description, plan.description):
            count = _add_priors(found, index, plan, folder)
            taken = f"learning from {counted(count, 'trial')}"
        else:
            count = _add_first(found, index, plan)
            taken = f"trying its best {counted(count, 'setting')} first"
        if not count:
            raise ConfigError(
                f"{folder} has no complete trial whose settings belong to the space of this "
                "tuning, so there is nothing to learn from it."
            )
        found.lines.append(f"Warm start from {folder}: {taken}.")
    return found


def is_comparable(old: TuningConfig, new: TuningConfig) -> bool:
    """Return whether equal settings would have equal values in two tunings."""
    return all(getattr(old, key) == getattr(new, key) for key in COMPARED_KEYS)


def _add_priors(found: WarmStart, index: TrialIndex, plan: TuningPlan, folder: Path) -> int:
    records = []
    for trial in index:
        params = _as_params(trial, plan)
        if trial.status is TrialStatus.OPEN or params is None:
            continue
        points = {str(point): value for point, value in trial.points.items()}
        facts: dict[str, Any] = {"status": trial.status.value, "value": trial.value}
        records.append(
            PriorRecord.model_validate(
                {"params": params, "points": points, "source": str(folder), **facts}
            )
        )
    found.priors += records
    return len(records)


def _add_first(found: WarmStart, index: TrialIndex, plan: TuningPlan) -> int:
    best = sorted(
        index.with_status(TrialStatus.COMPLETE),
        key=lambda trial: (-(trial.value or 0.0), trial.number),
    )
    usable = [params for trial in best if (params := _as_params(trial, plan)) is not None]
    found.first += [params for params in usable[:FIRST] if params not in found.first]
    return len(usable[:FIRST])


def _as_params(trial: Trial, plan: TuningPlan) -> Params | None:
    """Return the settings of a trial in the space of a tuning; None if they do not belong to it.

    Keys that only the new space has are taken from the config.
    """
    params = {
        key: trial.params[key] if key in trial.params else config_value(plan.base_config, key)
        for key in plan.space.dimensions
    }
    return params if plan.space.contains(params) and plan.is_valid(params) else None
