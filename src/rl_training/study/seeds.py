"""`train_seeds`: one config with several seeds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.api.arguments import ConfigLike, as_config
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.machine import choose_device
from rl_training.study.study import RunOptions, Study, StudyResult, raise_interrupt
from rl_training.text import shown


def train_seeds(
    config: ConfigLike,
    seeds: int | Sequence[int] | None = None,
    *,
    progress: bool | None = None,
) -> StudyResult:
    """Train a config with several seeds, and return how the runs ended.

    On a GPU, the updates of all seeds run as one program; on the CPU, each seed is a process. Every
    seed is an ordinary run. Their folder is a study, so `Study.load` and ``rl-training study``
    report on it, and ``rl-training resume`` continues it.

    Args:
        config: A config, a mapping, a file or the name of a packaged config.
        seeds: A count or a list; by default, `seeds` of the config.
        progress: Whether to show a live display; by default, in a terminal only.
    """
    checked = as_config(config)
    if seeds is not None:
        data = {key: value for key, value in checked.to_dict().items() if key != "seed"}
        checked = TrainConfig(**data | {"seeds": seeds})
    result = start_seeds(checked, RunOptions(progress=progress))
    raise_interrupt(result.interrupted_by, f"The training in {result.path}")
    return result


def start_seeds(config: TrainConfig, options: RunOptions) -> StudyResult:
    """Train a config with several seeds in a new folder; the result says whether a signal came."""
    if config.seeds is None:
        raise ConfigError(f"seeds is missing: set it, or use train() for seed {config.seed}.")
    data: dict[str, Any] = {k: v for k, v in config.to_dict().items() if k != "seeds"}
    study = Study([{"config": data}], seeds=config.seeds)
    assert study.description is not None
    if choose_device(config.device).type == "cuda":
        study.description = study.description.model_copy(update={"executor": "population"})
    return study.train_runs(_new_folder(config), options)


def _new_folder(config: TrainConfig) -> Path:
    """Return the first free name for the folder of a config with several seeds."""
    assert config.seeds is not None
    environment = re.sub(r"[^A-Za-z0-9.-]+", "-", config.env_id or "data")
    base = Path(config.output_dir) / f"{config.algo}_{environment}_{len(config.seeds)}seeds"
    number, path = 1, base
    while os.path.lexists(path):
        number += 1
        path = base.with_name(f"{base.name}_{number}")
    return path


def continue_seeds(folder: Path, overrides: Sequence[str], options: RunOptions) -> StudyResult:
    """Continue the runs in the folder of a study."""
    if overrides:
        raise ConfigError(
            f"{shown(overrides[0])}: {folder} has several runs, whose settings are fixed. Resume a "
            f"single run to change them, such as one in {folder / 'runs'}."
        )
    return Study.load(folder).train_runs(None, options)
