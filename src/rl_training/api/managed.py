"""`ManagedAlgorithm`, the base class of `SAC`, `TD3`, … (managed_classes.py)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from rl_training.api.arguments import (
    as_path,
    check_callbacks,
    one_env,
    positional_env,
    whole_number,
)
from rl_training.api.cards import model_card
from rl_training.api.checkpoints import evaluate_checkpoint, predict_actions
from rl_training.api.exporting import Format, export_checkpoint
from rl_training.api.training import resume, train, warn
from rl_training.data.given_data import DATASET_KEYS, DatasetLike, select_dataset
from rl_training.envs import EnvLike
from rl_training.envs.given import GivenEnv
from rl_training.envs.resolving import is_object_label
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, TrainingError
from rl_training.experiment.config import (
    TrainConfig,
    apply_overrides,
    check_overrides,
    make_config,
)
from rl_training.experiment.machine import choose_device
from rl_training.experiment.run_envs import PassedEnvs, with_env
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import (
    Checkpoint,
    copy_checkpoint,
    list_steps,
    open_checkpoint,
)
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.session import Session
from rl_training.runtime.training_loop import TrainResult
from rl_training.statistics import mean_interval
from rl_training.text import shown
from rl_training.types import ActionArray

if TYPE_CHECKING:
    from typing_extensions import Self

RUN_KEYS = set(TrainConfig.model_fields) - {"algo", "env_id", "total_timesteps", "algo_kwargs"}


class ManagedAlgorithm:
    """A learner together with its environment, run folder and checkpoints."""

    algo: ClassVar[str]

    def __init__(
        self,
        *positional: Any,
        env: EnvLike | None = None,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        **options: Any,
    ) -> None:
        """Check the options; nothing is written before `learn`.

        Args:
            positional: The environment ``env``. More arguments are rejected, with a message that
                shows how to write the call.
            env: The environment: an id, a `gymnasium.Env`, a class or a function that makes one,
                or a Gymnasium vector environment (docs/environments.md).
            env_id: The same as ``env``, for an id.
            eval_env: The environment to evaluate in; by default, a new one like ``env``.
            dataset: Recorded data: a path, a Minari id, a mapping of arrays, a
                `TransitionDataset` or a Minari dataset.
            options: Config keys (docs/configuration.md), all on one level. `total_timesteps` is
                the exception: it is an argument of `learn`.
        """
        name = type(self).__name__
        env = positional_env(name, positional, env, policy=options.get("policy"))
        if "total_timesteps" in options:
            steps = shown(options["total_timesteps"])
            raise ConfigError(
                f"total_timesteps = {steps}: pass the number of steps to learn(), as in "
                f"{name}(…).learn({steps})."
            )
        passed = PassedEnvs.of(one_env(env, env_id), eval_env)
        data = {"env_id": None, **options}
        data = data if passed.env is None else with_env(data, passed.env)
        choose_device(self._configure(data, dataset).device)
        # An id is part of the config.
        self._envs = replace(passed, env=None) if isinstance(passed.env, str) else passed

    def _configure(
        self, options: dict[str, Any], dataset: DatasetLike | None = None
    ) -> TrainConfig:
        self._dataset = dataset
        if dataset is not None:
            options |= self._dataset_keys(dataset, options)
        top = {key: options.pop(key) for key in tuple(options) if key in (*RUN_KEYS, "env_id")}
        self._data = {"algo": self.algo, **top, "algo_kwargs": options}
        # The budget is an argument of `learn`; with a placeholder, all other keys are checked here.
        config = make_config(self._data | {"total_timesteps": 1})
        self._seed, self._seeds = config.seed, config.seeds
        self.result: TrainResult | None = None
        """The result of the latest `learn`."""
        self.members: list[ManagedAlgorithm] = []
        """With the option `seeds`, the trained agent of each seed."""
        self._checkpoint: Path | None = None
        self._step = 0
        self._policy: Policy | None = None
        return config

    @staticmethod
    def _dataset_keys(dataset: DatasetLike, options: Mapping[str, Any]) -> dict[str, Any]:
        for key in ("dataset_path", "dataset_id", "dataset_kind"):
            if options.get(key) is not None:
                raise ConfigError(f"dataset and {key} are both set: set only one of them.")
        return select_dataset(dataset)[0]

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        overrides: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Self:
        """Train for ``total_timesteps`` more steps, in a new run or in the current one.

        After an error or Ctrl-C, which saves a checkpoint and raises `KeyboardInterrupt`,
        `run_dir` and `predict` refer to the newest checkpoint of the run, from which the next
        `learn` continues.

        Args:
            total_timesteps: Number of steps; offline, a step is a gradient update. A new run with
                the option `num_epochs` does not need it.
            overrides: ``key=value`` strings as on the command line. A continued run accepts only
                those that do not contradict its checkpoint.
            callbacks: Callbacks, for this call only.
            progress: Whether to show a live display; by default, in a terminal or a notebook
                only.
        """
        callbacks = check_callbacks(callbacks)
        if total_timesteps is not None:
            total_timesteps = whole_number("total_timesteps", total_timesteps)
        if self._seeds is not None:
            self._learn_seeds(total_timesteps, overrides, callbacks, progress)
            return self
        where = _RunDirectoryRecorder()
        watching = [where, *callbacks]
        try:
            if self._checkpoint is None:
                data = copy.deepcopy(self._data) | {"total_timesteps": total_timesteps}
                apply_overrides(data, overrides)
                self.result = train(
                    data,
                    env=self._envs.env,
                    eval_env=self._envs.eval_env,
                    dataset=self._dataset,
                    callbacks=watching,
                    progress=progress,
                )
            elif total_timesteps is None or total_timesteps < 1:
                raise ConfigError(
                    f"learn({total_timesteps}): should be the number of additional steps, at "
                    "least 1."
                )
            else:
                current = self.checkpoint
                goal = f"total_timesteps={_next_budget(current, total_timesteps)}"
                self.result = resume(
                    current.path,
                    [goal, *check_overrides(overrides)],
                    env=self._envs.env,
                    eval_env=self._envs.eval_env,
                    dataset=self._dataset,
                    callbacks=watching,
                    progress=progress,
                )
        finally:
            steps = list_steps(where.run_dir) if where.run_dir is not None else []
            if steps:
                self._use_checkpoint(steps[-1])
                self._data["env_id"] = where.env_id
        return self

    def _learn_seeds(
        self,
        total_timesteps: int | None,
        overrides: Sequence[str],
        callbacks: Sequence[Callback],
        progress: bool | None,
    ) -> None:
        """Train every seed, each as a run."""
        import rl_training  # `train_seeds` belongs to a higher layer

        if self.members:
            raise ConfigError(
                f"All seeds have been trained: continue single ones, such as members[0].learn("
                f"{total_timesteps})."
            )
        passed = self._envs.env is not None or self._envs.eval_env is not None
        if passed or self._dataset is not None or callbacks:
            raise ConfigError(
                "seeds trains in other processes: pass an environment by its id, data by "
                "dataset_path or dataset_id, and no callbacks."
            )
        data = copy.deepcopy(self._data) | {"total_timesteps": total_timesteps}
        apply_overrides(data, overrides)
        result = rl_training.train_seeds(data, progress=progress)
        if result.failed:
            first = result.failed[0]
            raise TrainingError(
                f"{len(result.failed)} of {len(result.runs)} seeds failed, seed {first.seed} "
                f"because {first.reason}. The others are in {result.path}."
            )
        self.members = [type(self).load(run.path) for run in result.runs]

    def _evaluate_members(self, episodes: int, **options: Any) -> dict[str, Any]:
        """Evaluate every seed; the interval is that of the mean over seeds."""
        results = [member.evaluate(episodes, **options) for member in self._trained_members()]
        returns = [float(result["eval_return_mean"]) for result in results]
        interval = mean_interval(returns)
        return {
            "eval_return_mean": float(np.mean(returns)),
            "eval_return_std": float(np.std(returns)),
            "eval_return_ci95": [interval.low, interval.high] if len(returns) > 1 else None,
            "members": results,
        }

    def _trained_members(self) -> list[ManagedAlgorithm]:
        if not self.members:
            raise RLTrainingError(f"This {type(self).__name__} has not been trained: call learn().")
        return self.members

    def _use_checkpoint(self, path: Path) -> None:
        self._checkpoint, self._policy = path, None
        self._step = int(path.name.removeprefix("step_"))

    def __repr__(self) -> str:
        place = f"seed={self._seed}, not trained yet"
        if self._seeds is not None:
            place = f"seeds={[*self._seeds]}, {'trained' if self.members else 'not trained yet'}"
        if self._checkpoint is not None:
            folder = "run_dir" if self.run_dir is not None else "checkpoint"
            place = f"{folder}={str(self.run_dir or self._checkpoint)!r}, step={self._step}"
        env_id = self._data["env_id"]
        shown_env = env_id if is_object_label(env_id) else repr(env_id)
        return f"{type(self).__name__}({shown_env}, {place})"

    @property
    def checkpoint(self) -> SavedRun:
        """The current checkpoint, verified.

        If another process has continued the run and deleted it (`keep_checkpoints`), the run's
        last checkpoint is used instead, with a warning.
        """
        name = type(self).__name__
        if self._seeds is not None:
            raise ConfigError(
                f"This {name} has {len(self._seeds)} seeds: use one of them, such as members[0]."
            )
        if self._checkpoint is None:
            raise RLTrainingError(f"This {name} has not been trained yet: call learn().")
        if not self._checkpoint.exists():
            gone, run_dir = self._checkpoint, self.run_dir
            steps = list_steps(run_dir) if run_dir is not None else []
            if not steps:
                raise CheckpointError(
                    f"{gone} no longer exists: load another checkpoint with {name}.load(PATH)"
                )
            warn(f"{gone} no longer exists: this {name} uses {steps[-1].name} of the run instead.")
            self._use_checkpoint(steps[-1])
        return SavedRun.of(open_checkpoint(self._checkpoint))

    @property
    def run_dir(self) -> Path | None:
        """The folder of the run, or None before the first `learn`."""
        return self._checkpoint and Checkpoint(self._checkpoint, {}).run_dir

    @property
    def policy(self) -> Policy:
        """The current policy: a function from observations to actions."""
        if self._policy is None:
            self._policy = self.checkpoint.load_policy()
        return self._policy

    def predict(self, obs: Any, *, action_mask: npt.ArrayLike | None = None) -> ActionArray:
        """Return deterministic actions, in the units of the environment.

        ``obs`` is one observation or a batch: what the environment returns, or its flat vector
        (docs/observations.md). ``action_mask`` is 1 for each legal discrete action and 0 for the
        others, such as ``info["action_mask"]``, or a batch of them.
        """
        return predict_actions(self.policy, obs, action_mask)

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = 0,
        env: EnvLike | None = None,
        env_id: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Evaluate on seeded episodes without exploration; see docs/metrics.md for the values.

        Args:
            episodes: Number of episodes. Episode i starts from ``seed + i``, so evaluations with
                neighboring seeds share episodes.
            seed: Seed of the first episode.
            env: An environment with the same spaces: an id, a `gymnasium.Env`, or a class or a
                function that makes one; by default, ``eval_env`` of this object, or else a new
                environment like the one in training.
            env_id: The same as ``env``, for an id.
            env_kwargs: Arguments of ``env``; without ``env``, they override those of the run.

        With the option `seeds`, all seeds play the same episodes. The mean and its interval are
        over seeds, and ``members`` has the result of each.
        """
        if self._seeds is not None:
            own: dict[str, Any] = {"env": env, "env_id": env_id, "env_kwargs": env_kwargs}
            return self._evaluate_members(episodes, seed=seed, **own)
        checkpoint, chosen = self.checkpoint, one_env(env, env_id)
        if chosen is None:
            chosen = self._evaluation_env(checkpoint.config)
        plays = chosen is not None or checkpoint.config.env_id is not None
        return evaluate_checkpoint(
            checkpoint.path,
            episodes=episodes,
            seed=seed,
            env=chosen,
            env_kwargs=env_kwargs,
            dataset=None if plays else self._dataset,
        )

    def _evaluation_env(self, config: TrainConfig) -> EnvLike | None:
        """Return the environment to evaluate in; None if the run's config has it."""
        own = self._envs.training_env(config)
        if self._envs.eval_env is not None:
            return self._envs.eval_env
        if not isinstance(own, GivenEnv):
            return self._envs.env
        other = own if config.mode == "offline" else own.another()
        if other is None:
            raise ConfigError(
                f"{own.name} cannot be created again for an evaluation: pass env=…, an "
                "environment, a class or a function."
            )
        return other

    def save(self, path: str | Path) -> Path:
        """Copy the current checkpoint, including its replay, to a new folder."""
        return copy_checkpoint(self.checkpoint, as_path("path", path, "a new folder"))

    def export(
        self,
        path: str | Path,
        format: Format | None = None,
        *,
        standalone: bool = False,
        overwrite: bool = False,
    ) -> dict[str, Any]:
        """Export the current policy to a file that runs without this package.

        The arguments and the result are those of `export_checkpoint`.
        """
        return export_checkpoint(
            self.checkpoint.path, path, format=format, standalone=standalone, overwrite=overwrite
        )

    def card(
        self,
        out: str | Path | None = None,
        *,
        episodes: int | None = None,
        env: EnvLike | None = None,
        push: str | None = None,
        private: bool = False,
        onnx: bool = False,
        license: str | None = None,
        overwrite: bool = False,
    ) -> dict[str, Any]:
        """Write a model card for the current policy, and publish it with ``push``.

        The arguments and the result are those of `model_card`. By default, episodes are played in
        the environment of `evaluate`.
        """
        checkpoint = self.checkpoint
        if env is None and episodes != 0:
            env = self._evaluation_env(checkpoint.config)
        return model_card(
            checkpoint.path,
            out,
            episodes=episodes,
            env=env,
            license=license,
            push=push,
            private=private,
            onnx=onnx,
            overwrite=overwrite,
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | None = None,
        *,
        eval_env: EnvLike | None = None,
        best: bool = False,
        dataset: DatasetLike | None = None,
    ) -> Self:
        """Load a run or a checkpoint; `learn` then continues it.

        Args:
            path: A run or a checkpoint.
            env: The environment of the run, if it was passed as an object. `predict` does not
                need it.
            eval_env: The environment to evaluate in, if it was passed as an object.
            best: Use the best checkpoint of the run instead of the last one.
            dataset: The run's recorded data, if it was passed as an object or has moved.
        """
        passed = PassedEnvs.of(env, eval_env)
        checkpoint = SavedRun.load(as_path("path", path), best=best)
        config = checkpoint.config.to_dict()
        if config["algo"] != cls.algo:
            raise ConfigError(f"{path} was trained with {config['algo']!r}, not with {cls.algo!r}.")
        kwargs = config.pop("algo_kwargs")
        learner = cls.__new__(cls)
        del config["algo"], config["total_timesteps"]
        # This machine may not have the run's device; evaluation and prediction use the CPU.
        if dataset is not None:
            kwargs = {key: value for key, value in kwargs.items() if key not in DATASET_KEYS}
        learner._configure(config | kwargs, dataset)
        learner._envs = passed
        learner._checkpoint, learner._step = checkpoint.path.absolute(), checkpoint.step
        return learner


class _RunDirectoryRecorder(Callback):
    """Records the folder and the environment of the run, which are also needed after an error."""

    run_dir: Path | None = None
    env_id: str | None = None

    def on_start(self, session: Session) -> None:
        self.env_id = session.manifest["config"]["env_id"]
        self.run_dir = session.checkpoints.run_dir.absolute()  # the process may change directory


def _next_budget(checkpoint: SavedRun, steps: int) -> int:
    """Return the `total_timesteps` that trains a run for more steps.

    With several environments, a finished run is up to ``num_envs - 1`` steps past its budget. They
    count as part of the next one, so that a run in parts has the length of one in a single part.
    """
    config = checkpoint.config
    done = max(0, checkpoint.step - config.online_from)
    return max(min(done, config.budget) + steps, done + 1)
