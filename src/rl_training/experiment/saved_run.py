"""A checkpoint with what it records of its run: config, environment, data, learner."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from rl_training.algorithms.registry import get_algorithm
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.build import build_algorithm
from rl_training.experiment.config import TrainConfig, saved_config
from rl_training.experiment.dataset_source import RunData
from rl_training.experiment.machine import choose_device
from rl_training.experiment.memory import plan_learner
from rl_training.experiment.run_directory import folder_of, locate
from rl_training.runtime.checkpointing import (
    MANIFEST,
    MODEL,
    OPTIMIZER_PREFIX,
    Checkpoint,
    load_tensors,
    open_checkpoint,
)
from rl_training.runtime.evaluation import Policy
from rl_training.types import EnvSpec


class SavedRun(Checkpoint):
    """A verified checkpoint whose config and environment are read once."""

    @classmethod
    def load(cls, path: Path, *, best: bool = False, replay: bool = False) -> SavedRun:
        """The last or the best checkpoint of a run, or the one that the path is of, verified."""
        return cls.of(open_checkpoint(locate(path, best=best), replay=replay))

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> SavedRun:
        """The run that a checkpoint records."""
        return cls(checkpoint.path, checkpoint.manifest)

    @cached_property
    def config(self) -> TrainConfig:
        """The run's config; its `output_dir` is where the run is now."""
        config = saved_config(self.manifest["config"] | {"output_dir": "runs"})
        if self.run_dir is None:
            return config
        # Not validated: a run may be moved to a folder that no config may name.
        return config.model_copy(update={"output_dir": str(folder_of(self.run_dir))})

    @cached_property
    def spec(self) -> EnvSpec:
        """The environment that the run was trained on, as the manifest describes it."""
        try:
            spec = EnvSpec.from_dict(self.manifest["env_spec"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{self.path / MANIFEST} has no environment: {error}") from None
        bounds = (*spec.action_low, *spec.action_high)
        # Every observation entry and action has weights: sizes beyond the file's are made up.
        most = self.manifest["files"][MODEL]["bytes"]
        if (
            not (0 < spec.obs_dim <= most and 0 < spec.action_dim <= most)
            or not 0 <= spec.goal_dim < spec.obs_dim
            or len(bounds) != (0 if spec.discrete else 2 * spec.action_dim)
            or len(spec.action_low) != len(spec.action_high)
            or not (np.abs(bounds) <= np.finfo(np.float32).max).all()
            or not np.less(spec.action_low, spec.action_high).all()
            or not -(2**53) < spec.action_start < 2**53
            or (spec.action_start != 0 and not spec.discrete)
        ):
            raise CheckpointError(f"{self.path / MANIFEST} describes an impossible environment")
        if get_algorithm(self.config.algo).goals != (spec.goal_dim > 0):
            raise CheckpointError(f"{self.path / MANIFEST} does not fit its algorithm's goals")
        return spec

    def check_env(self, spec: EnvSpec, *, named: str | None = None) -> None:
        """Refuse an environment whose sizes or bounds are not those of the training.

        ``named`` is the environment that the user chose, where it is not the run's own.
        """
        if self.spec == spec:
            return
        if named is not None:
            raise ConfigError(
                f"The policy in {self.path} expects {self.spec}, but {named} has {spec}: choose an "
                "environment with the same spaces."
            )
        raise CheckpointError(
            f"The policy in {self.path} expects {self.spec}, but its environment has {spec}: "
            "the environment has changed since training."
        )

    def check_learner(self, config: TrainConfig, spec: EnvSpec) -> None:
        """Refuse a config of a larger learner than the checkpoint holds, before it is built."""
        learner = plan_learner(config, spec)
        if learner is None:
            return
        state = learner.state_dict().items()
        weights = sum(x.nbytes for name, x in state if not name.startswith(OPTIMIZER_PREFIX))
        saved = self.manifest["files"][MODEL]["bytes"]
        if weights > saved:
            raise CheckpointError(
                f"{self.path} does not fit this learner: its config describes {weights:,} bytes "
                f"of weights, but {MODEL} has {saved:,} bytes"
            )

    def check_data(self, data: RunData, advice: str) -> None:
        """Refuse recorded data that is not what the run was trained on, with a way out."""
        saved, now = self.manifest.get("dataset"), data.record
        if not isinstance(saved, dict) or not isinstance(saved.get("sha256"), str):
            raise CheckpointError(
                f"{self.path / MANIFEST} does not say what data it was trained on"
            )
        if saved["sha256"] != now["sha256"]:
            raise ConfigError(
                f"{now['source']} is not the data that {self.path} was trained on: "
                f"{saved.get('rows')} rows then, {now['rows']} now, or other values in them: "
                f"{advice}."
            )

    def load_policy(self, device: str = "cpu") -> Policy:
        """The policy, for evaluation and prediction."""
        spec, where = self.spec, choose_device(device)
        self.check_learner(self.config, spec)
        algorithm = build_algorithm(self.config, spec, where)
        load_tensors(algorithm, self, MODEL)
        return Policy(algorithm, spec, where)
