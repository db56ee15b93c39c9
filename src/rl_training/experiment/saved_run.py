"""A checkpoint with the config, environment and data of its run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
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
from rl_training.experiment.run_directory import locate, parent_folder
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
    """A verified checkpoint that parses its config and environment once."""

    @classmethod
    def load(cls, path: Path, *, best: bool = False, replay: bool = False) -> SavedRun:
        """Verify and load a checkpoint, or the last or best checkpoint of a run."""
        return cls.of(open_checkpoint(locate(path, best=best), replay=replay))

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> SavedRun:
        """Return the saved run of a verified checkpoint."""
        return cls(checkpoint.path, checkpoint.manifest)

    @cached_property
    def config(self) -> TrainConfig:
        """Config of the run; `output_dir` is its current location."""
        config = saved_config(self.manifest["config"] | {"output_dir": "runs"})
        if self.run_dir is None:
            return config
        # Not validated: a run may be in a folder that is not a valid output_dir.
        return config.model_copy(update={"output_dir": str(parent_folder(self.run_dir))})

    @cached_property
    def spec(self) -> EnvSpec:
        """Environment of the run, as described by the manifest."""
        try:
            spec = EnvSpec.from_dict(self.manifest["env_spec"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{self.path / MANIFEST} has an invalid env_spec: {error}"
            ) from None
        bounds = (*spec.action_low, *spec.action_high)
        # Every entry of an observation and action has weights, so larger sizes are invalid.
        most = self.manifest["files"][MODEL]["bytes"]
        if (
            not (0 < spec.obs_dim <= most and 0 < spec.action_dim <= most)
            or not 0 <= spec.goal_dim < spec.obs_dim
            or len(bounds) != (0 if spec.discrete else 2 * spec.action_dim)
            or len(spec.action_low) != len(spec.action_high)
            or not (np.abs(bounds) <= np.finfo(np.float32).max).all()
            or not np.less(spec.action_low, spec.action_high).all()
            or not -(2**53) < spec.action_start < 2**53
            or ((spec.action_start != 0 or spec.action_masks) and not spec.discrete)
            or not _are_choices(spec)
        ):
            raise CheckpointError(f"{self.path / MANIFEST} has an invalid env_spec")
        if get_algorithm(self.config.algo).goals != (spec.goal_dim > 0):
            raise CheckpointError(
                f"{self.path / MANIFEST} has an env_spec that does not match its algorithm: only "
                "one of them has goals"
            )
        return spec

    @property
    def recorded_limit(self) -> int | None:
        """Time limit of an environment that was passed as an object, if it had one."""
        record = self.manifest.get("environment")
        limit = record.get("time_limit") if isinstance(record, dict) else None
        return limit if type(limit) is int and limit > 0 else None

    def check_env(self, spec: EnvSpec, *, chosen: str | None = None) -> None:
        """Reject an environment whose sizes or bounds differ from those in training.

        ``chosen`` is the environment that the user chose instead of the run's own, if any. Action
        masks do not matter: they are not inputs of a network.
        """
        with suppress(ConfigError):  # the spaces differ, as the error below says
            spec = self.config.parts.narrowed(spec)
        if self.spec == replace(spec, action_masks=self.spec.action_masks):
            return
        if chosen is not None:
            raise ConfigError(
                f"The policy in {self.path} expects {self.spec}, but {chosen} has {spec}: choose "
                "an environment with the same spaces."
            )
        raise CheckpointError(
            f"The policy in {self.path} expects {self.spec}, but its environment has {spec}: "
            "the environment has changed since training."
        )

    def check_learner(self, config: TrainConfig, spec: EnvSpec) -> None:
        """Reject a config whose learner is larger than the checkpoint, before building it."""
        learner = plan_learner(config, spec)
        if learner is None:
            return
        state = learner.state_dict().items()
        weights = sum(x.nbytes for name, x in state if not name.startswith(OPTIMIZER_PREFIX))
        saved = self.manifest["files"][MODEL]["bytes"]
        if weights > saved:
            raise CheckpointError(
                f"{self.path} does not match this learner: its config describes {weights:,} bytes "
                f"of weights, but {MODEL} has {saved:,} bytes"
            )

    def check_data(self, data: RunData, advice: str) -> None:
        """Reject data that differs from the training data; the error ends with ``advice``."""
        saved, now = self.manifest.get("dataset"), data.record
        if not isinstance(saved, dict) or not isinstance(saved.get("sha256"), str):
            raise CheckpointError(
                f"{self.path / MANIFEST} does not record the data that it was trained on"
            )
        if saved["sha256"] != now["sha256"]:
            difference = f"{saved.get('rows')} rows then, {now['rows']} rows now"
            if saved.get("rows") == now["rows"]:
                difference = "the same number of rows, but different values"
            raise ConfigError(
                f"{now['source']} differs from the data that {self.path} was trained on "
                f"({difference}): {advice}."
            )

    def load_policy(self, device: str = "cpu") -> Policy:
        """Load the policy, for evaluation and prediction."""
        spec, where = self.spec, choose_device(device)
        self.check_learner(self.config, spec)
        algorithm = build_algorithm(self.config, spec, where)
        load_tensors(algorithm, self, MODEL)
        return Policy(algorithm, spec, where)


def _are_choices(spec: EnvSpec) -> bool:
    """Return whether the numbers of a MultiDiscrete action, if there are any, are valid."""
    choices, starts = spec.action_choices, spec.action_starts
    if not choices:
        return not starts
    plain = spec.discrete and not spec.action_masks and spec.action_start == 0
    sizes = min(choices) > 0 and sum(choices) == spec.action_dim and len(starts) == len(choices)
    return plain and sizes and max(map(abs, starts)) < 2**53
