"""`ManagedAlgorithm`, the base class of `SAC`, `TD3`, … (managed_classes.py)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rl_training.api.arguments import (
    as_path,
    check_callbacks,
    check_positional,
    whole_number,
)
from rl_training.api.checkpoints import check_obs, evaluate_checkpoint
from rl_training.api.training import resume, train, warn
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.config import (
    TrainConfig,
    apply_overrides,
    check_overrides,
    make_config,
)
from rl_training.experiment.machine import choose_device
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
from rl_training.text import shown
from rl_training.types import ActionArray, FloatArray

if TYPE_CHECKING:
    from typing_extensions import Self

RUN_KEYS = set(TrainConfig.model_fields) - {"algo", "env_id", "total_timesteps", "algo_kwargs"}


class ManagedAlgorithm:
    """A learner together with its environment, run folder and checkpoints."""

    algo: ClassVar[str]

    def __init__(self, env_id: str | None = None, *extra: Any, **options: Any) -> None:
        """Check the options; nothing is written before `learn`.

        Args:
            env_id: The id of a registered environment.
            extra: Rejected, with a message that shows how to write the call.
            options: Config keys (docs/configuration.md), all on one level. `total_timesteps` is
                the exception: it is an argument of `learn`.
        """
        name = type(self).__name__
        check_positional(name, env_id, extra, options)
        if "total_timesteps" in options:
            steps = shown(options["total_timesteps"])
            raise ConfigError(
                f"total_timesteps = {steps}: pass the number of steps to learn(), as in "
                f"{name}(…).learn({steps})."
            )
        choose_device(self._configure(env_id, options).device)

    def _configure(self, env_id: str | None, options: dict[str, Any]) -> TrainConfig:
        top = {key: options.pop(key) for key in tuple(options) if key in RUN_KEYS}
        self._data = {"algo": self.algo, "env_id": env_id, **top, "algo_kwargs": options}
        # The budget is an argument of `learn`; with a placeholder, all other keys are checked here.
        config = make_config(self._data | {"total_timesteps": 1})
        self._seed = config.seed
        self.result: TrainResult | None = None
        """The result of the latest `learn`."""
        self._checkpoint: Path | None = None
        self._step = 0
        self._policy: Policy | None = None
        return config

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        overrides: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Self:
        """Train for ``total_timesteps`` more steps, in a new run or in the current one.

        After an error, `run_dir` and `predict` refer to the newest checkpoint of the run, from
        which the next `learn` continues.

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
        where = _RunDirectoryRecorder()
        watching = [where, *callbacks]
        try:
            if self._checkpoint is None:
                data = copy.deepcopy(self._data) | {"total_timesteps": total_timesteps}
                apply_overrides(data, overrides)
                self.result = train(data, callbacks=watching, progress=progress)
            elif total_timesteps is None or total_timesteps < 1:
                raise ConfigError(
                    f"learn({total_timesteps}): should be the number of additional steps, at "
                    "least 1."
                )
            else:
                current = self.checkpoint
                done = max(0, current.step - current.config.online_from)
                goal = f"total_timesteps={done + total_timesteps}"
                self.result = resume(
                    current.path,
                    [goal, *check_overrides(overrides)],
                    callbacks=watching,
                    progress=progress,
                )
        finally:
            steps = list_steps(where.run_dir) if where.run_dir is not None else []
            if steps:
                self._use_checkpoint(steps[-1])
        return self

    def _use_checkpoint(self, path: Path) -> None:
        self._checkpoint, self._policy = path, None
        self._step = int(path.name.removeprefix("step_"))

    def __repr__(self) -> str:
        place = f"seed={self._seed}, not trained yet"
        if self._checkpoint is not None:
            folder = "run_dir" if self.run_dir is not None else "checkpoint"
            place = f"{folder}={str(self.run_dir or self._checkpoint)!r}, step={self._step}"
        return f"{type(self).__name__}({self._data['env_id']!r}, {place})"

    @property
    def checkpoint(self) -> SavedRun:
        """The current checkpoint, verified.

        If another process has continued the run and deleted it (`keep_checkpoints`), the run's
        last checkpoint is used instead, with a warning.
        """
        name = type(self).__name__
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

    def predict(self, obs: FloatArray | Mapping[str, FloatArray]) -> ActionArray:
        """Return deterministic actions, in the units of the environment.

        ``obs`` is one observation or a batch. An observation of a goal environment is its Dict, or
        ``observation`` and ``desired_goal`` concatenated.
        """
        return self.policy(check_obs(obs, self.policy.spec))

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = 0,
        env_id: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Evaluate on seeded episodes without exploration; see docs/metrics.md for the values.

        Episode i starts from ``seed + i``, so evaluations with neighboring seeds share episodes.
        ``env_id`` selects another environment with the same spaces, and ``env_kwargs`` are its
        arguments; without ``env_id`` they override those of the run.
        """
        path = self.checkpoint.path
        return evaluate_checkpoint(
            path, episodes=episodes, seed=seed, env_id=env_id, env_kwargs=env_kwargs
        )

    def save(self, path: str | Path) -> Path:
        """Copy the current checkpoint, including its replay, to a new folder."""
        return copy_checkpoint(self.checkpoint, as_path("path", path, "a new folder"))

    @classmethod
    def load(cls, path: str | Path, *, best: bool = False) -> Self:
        """Load a run or a checkpoint; `learn` then continues it."""
        checkpoint = SavedRun.load(as_path("path", path), best=best)
        config = checkpoint.config.to_dict()
        if config["algo"] != cls.algo:
            raise ConfigError(f"{path} was trained with {config['algo']!r}, not with {cls.algo!r}.")
        kwargs = config.pop("algo_kwargs")
        learner = cls.__new__(cls)
        del config["algo"], config["total_timesteps"]
        # This machine may not have the run's device; evaluation and prediction use the CPU.
        learner._configure(config.pop("env_id"), config | kwargs)
        learner._checkpoint, learner._step = checkpoint.path.absolute(), checkpoint.step
        return learner


class _RunDirectoryRecorder(Callback):
    """Records the folder of the run, which is also needed after an error."""

    run_dir: Path | None = None

    def on_start(self, session: Session) -> None:
        self.run_dir = session.checkpoints.run_dir.absolute()  # the process may change directory
