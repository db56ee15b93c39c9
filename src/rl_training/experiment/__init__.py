"""Experiments: the config, the run folders, and putting a session together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.experiment.build import build_session, load_policy
    from rl_training.experiment.config import TrainConfig, config_names
    from rl_training.experiment.run_directory import list_runs, locate

__all__ = [
    "TrainConfig",
    "build_session",
    "config_names",
    "list_runs",
    "load_policy",
    "locate",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "TrainConfig": "config",
        "build_session": "build",
        "config_names": "config",
        "list_runs": "run_directory",
        "load_policy": "build",
        "locate": "run_directory",
    },
)
