"""The arguments of `train`: the name or file of a config, and ``key=value`` overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.algorithms.registry import REGISTRY
from rl_training.api.arguments import as_path
from rl_training.boundary.packaged_configs import config_names
from rl_training.errors import ConfigError
from rl_training.experiment.config import (
    TrainConfig,
    apply_overrides,
    make_config,
)
from rl_training.text import shown

DEFAULT_STEPS = 100_000
"""Default budget of a run without a config."""


def parse_train_arguments(named: str | None, words: Sequence[str]) -> tuple[TrainConfig, str]:
    """Return the config and a note about it.

    The source is ``--config``, an argument without ``=``, or the ``key=value`` arguments alone.
    """
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    if named is not None and names:
        raise ConfigError(
            f"{shown(names[0])} is not an override, and --config already sets the config: write "
            "overrides as key=value."
        )
    if len(names) > 1:
        raise ConfigError(
            f"{shown(names[0])} and {shown(names[1])}: a run has only one config. Write "
            "overrides as key=value."
        )
    source = named if named is not None else next(iter(names), None)
    if source is None:
        return _config_from_keys(overrides)
    if source in REGISTRY and source not in config_names():
        choices = ", ".join(name for name in config_names() if name.startswith(f"{source}/"))
        config = f"a config ({choices}), or " if choices else ""
        raise ConfigError(
            f"{source!r} is an algorithm, not a config: use {config}algo={source} env_id=ID."
        )
    as_path("config", source)
    return TrainConfig.load(source, overrides), ""


def _config_from_keys(overrides: Sequence[str]) -> tuple[TrainConfig, str]:
    algos = [word for word in overrides if word.startswith("algo=")]
    if not algos:
        raise ConfigError(
            "Pass a config (rl-training train sac/pendulum), or an algorithm and an environment "
            "(rl-training train algo=sac env_id=Pendulum-v1)."
        )
    data: dict[str, Any] = {}
    # The algorithm comes first, since the other keys depend on it.
    apply_overrides(data, [*algos, *(word for word in overrides if word not in algos)])
    kwargs = data.get("algo_kwargs") or {}
    if data.get("total_timesteps") is not None or kwargs.get("num_epochs"):
        return make_config(data), ""
    config = make_config(data | {"total_timesteps": DEFAULT_STEPS})
    unit = "updates" if config.mode == "offline" else "steps"
    note = f"Training for {DEFAULT_STEPS:,} {unit}; use total_timesteps=N to change this."
    return config, note
