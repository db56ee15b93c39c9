"""Collect transitions from the training environments into the replay."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from rl_training.boundary.values import StateError, matching_array, real_number, whole_number
from rl_training.data import ReplayBuffer
from rl_training.envs import OWN_RETURN, ActionScaler, CaptureError, TrainingEnvs
from rl_training.envs.contract import ACTION_MASK
from rl_training.envs.pool import PooledEnvs
from rl_training.errors import CheckpointError, EnvError, RLTrainingError, TrainingError
from rl_training.runtime.acting import Explorer
from rl_training.runtime.observing import Observer
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import BoolArray, EnvSpec, FloatArray, ObsArray

RECENT_EPISODES = 20
"""Number of episodes over which `Collector.recent_return` averages."""


class Episode(NamedTuple):
    """A finished training episode."""

    total: float
    length: int


class FinishedEpisode(NamedTuple):
    """An episode that ended in the latest step."""

    env: int
    """Index of the environment."""
    total: float
    """Return, without reward transforms."""
    length: int


class SharedStep(NamedTuple):
    """A step of one member of a population, whose transitions are already stored."""

    rewards: FloatArray
    terminations: BoolArray
    truncations: BoolArray
    infos: dict[str, Any]


class SharedCollection(Protocol):
    """Steps the environments of several collectors together."""

    def request_actions(self, row: int, *, random: bool) -> None:
        """Note that a collector needs actions for its next step."""

    def has_requested(self, row: int) -> bool:
        """Whether a collector has requested actions that it has not received yet."""

    def deliver_actions(self) -> None:
        """Give every collector the actions that were chosen for it."""

    def take_step(self, row: int) -> SharedStep:
        """Return the latest step of a collector, or raise its error."""


class LatestStep:
    """What the training environments returned in the latest step, for callbacks.

    The next step overwrites the arrays: copy what you keep.
    """

    def __init__(
        self,
        envs: TrainingEnvs,
        rewards: FloatArray,
        terminations: BoolArray,
        truncations: BoolArray,
        episodes: tuple[FinishedEpisode, ...],
    ) -> None:
        self._envs = envs
        self.rewards = rewards
        """Rewards as the learner receives them: [num_envs]."""
        self.terminations = terminations
        """Where the task ended the episode: [num_envs]."""
        self.truncations = truncations
        """Where the episode was cut off, for example by a time limit: [num_envs]."""
        self.episodes = episodes
        """Episodes that ended in this step."""

    @cached_property
    def infos(self) -> tuple[dict[str, Any], ...]:
        """The info of each environment; with `vectorization: async`, read from its process.

        Where an episode ended, it is the info of the last step, not of the reset that followed.
        """
        return tuple(self._envs.call("latest_info"))


class Collector:
    """Steps vector environments with SAME_STEP resets; tracks episode returns and lengths."""

    def __init__(
        self,
        envs: TrainingEnvs,
        explorer: Explorer,
        buffer: ReplayBuffer,
        spec: EnvSpec,
        *,
        seed: int,
        observer: Observer | None = None,
    ) -> None:
        self.envs = envs
        self.num_envs = envs.num_envs
        self.episodes = 0
        self.inexact_restore: str | None = None
        """After a resume: why the environments could not be restored exactly; None if they were."""
        self.explorer = explorer
        self.buffer = buffer
        self._observer = observer
        self._obs_dim = spec.obs_dim
        self._scaler = ActionScaler(spec)
        self._seed = seed
        self._dtype = spec.obs_dtype
        self._obs: ObsArray = np.empty((0,), dtype=self._dtype)
        self._actions: FloatArray = np.empty((0,), dtype=np.float32)
        self._has_masks = spec.action_masks
        self._legal: BoolArray | None = None
        """Legal actions at the current observations, ``[num_envs, actions]``."""
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._finished: list[Episode] = []
        self.last_return: float | None = None
        self.latest: LatestStep | None = None
        """The latest step; None before the first one."""
        self._recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._restored = False
        self.spec = spec
        self.next_step = 0
        """The step that is taken next, for messages."""
        self._shared: SharedCollection | None = None
        self._row = 0

    def join(self, shared: SharedCollection, row: int, envs: PooledEnvs, obs: FloatArray) -> None:
        """Let ``shared`` step the environments, which have moved to ``envs``, from now on.

        It writes the current observations to ``obs``.
        """
        obs[:] = self._obs
        self.envs.close()
        self._shared, self._row, self.envs, self._obs = shared, row, envs, obs

    def reset(self, step: int = 0) -> None:
        """Start new episodes in all environments, seeded by the run's seed and ``step``."""
        extra = (step,) if step else ()
        seed = derive_seed(self._seed, Stream.ENVIRONMENT, *extra)
        try:
            obs, infos = self.envs.reset(seed=seed)
        except EnvError as error:
            raise self.failure(error, step) from error
        self._obs = np.array(obs, dtype=self._dtype)
        self._legal = infos[ACTION_MASK] if self._has_masks else None
        self.check_finite(step, observation=self._obs)
        self._returns[:] = 0.0
        self._lengths[:] = 0
        if self._observer is not None:
            self._observer.reset()

    def request_actions(self, *, random: bool) -> None:
        """Choose the actions for the next step, with the current policy or at random."""
        if self._shared is not None:
            self._shared.request_actions(self._row, random=random)
            return
        # Observations of a goal environment end with the achieved goal, which is not an input.
        self.explorer.request_actions(
            self._obs[:, : self._obs_dim], random=random, legal=self._legal
        )

    @property
    def has_actions(self) -> bool:
        """Whether the actions for the next step were requested."""
        if self._shared is not None and self._shared.has_requested(self._row):
            return True
        return self.explorer.has_actions

    @property
    def has_images(self) -> bool:
        """Whether observations contain images."""
        return self.buffer.frames is not None

    @property
    def steps_in_processes(self) -> bool:
        """Whether environments step in processes of their own after `send_actions`."""
        return isinstance(self.envs, PooledEnvs)

    def send_actions(self, step: int) -> None:
        """Take the requested actions and, if environments are in processes, start their step."""
        self.next_step = step + 1
        if self._shared is not None:
            return
        self._actions = self.explorer.take_actions()
        self.check_finite(step + 1, action=self._actions)
        if isinstance(self.envs, PooledEnvs):
            try:
                self.envs.step_async(self._scaler.to_env(self._actions))
            except EnvError as error:
                raise self.failure(error, step + 1) from error

    def step(self, step: int) -> int:
        """Take and store one step in every environment; return the number of transitions."""
        self.send_actions(step)
        return self.finish_step(step)

    def finish_step(self, step: int, *, request: Callable[[], None] | None = None) -> int:
        """Finish and store the step that `send_actions` started; return its transitions.

        ``request`` is called as soon as the next actions can be requested, so that a GPU chooses
        them while the transitions are stored.
        """
        if self._shared is not None:
            done = self._shared.take_step(self._row)
            self._restored = False
            if request is not None:
                request()
            return self._finish(*done)
        actions = self._actions
        try:
            if isinstance(self.envs, PooledEnvs):
                result = self.envs.step_wait()
            else:
                result = self.envs.step(self._scaler.to_env(actions))
        except EnvError as error:
            raise self.failure(error, step + 1) from error
        obs, rewards, terminations, truncations, infos = result
        self._restored = False
        next_obs = np.array(obs, dtype=self._dtype)
        ended = terminations | truncations
        finished = np.flatnonzero(ended).tolist() if ended.any() else []
        next_legal: BoolArray | None = infos[ACTION_MASK] if self._has_masks else None
        true_next, true_legal = next_obs, next_legal
        if finished:  # next_obs is from the next episode there
            true_next = next_obs.copy()
            for index in finished:
                true_next[index] = infos["final_obs"][index]
            self.check_finite(step + 1, observation=next_obs)
            if next_legal is not None:
                true_legal = next_legal.copy()
                true_legal[finished] = infos["final_info"][ACTION_MASK][finished]
        rewards32 = np.asarray(rewards, dtype=np.float32)
        self.check_finite(step + 1, observation=true_next, reward=rewards32)
        masks = () if self._legal is None else (self._legal, true_legal)
        self.observe(rewards32, ended)
        obs, self._obs, self._legal = self._obs, next_obs, next_legal
        if request is not None:
            request()
        self.buffer.add(obs, actions, rewards32, true_next, terminations, truncations, *masks)
        return self._finish(rewards, terminations, truncations, infos)

    def _finish(
        self,
        rewards: FloatArray,
        terminations: BoolArray,
        truncations: BoolArray,
        infos: dict[str, Any],
    ) -> int:
        """Track episodes, and return the number of transitions."""
        finished = np.flatnonzero(terminations | truncations).tolist()
        episodes = self._track_episodes(rewards, finished, infos)
        self.latest = LatestStep(self.envs, rewards, terminations, truncations, episodes)
        return self.num_envs

    def observe(self, rewards: FloatArray, ended: BoolArray) -> None:
        """Update running statistics with a step from the current observations."""
        if self._observer is not None:
            self._observer.observe(self._obs[:, : self._obs_dim], rewards, ended)

    def failure(self, error: EnvError, step: int) -> RLTrainingError:
        """Add the step to an environment's error; right after a resume, as a CheckpointError."""
        if self._restored:
            return CheckpointError(
                f"at step {step}, an environment could not continue from its saved state: {error}"
            )
        return EnvError(f"at step {step}, {error}")

    def check_finite(self, step: int, **quantities: ObsArray) -> None:
        """Raise an error that names the environment if a value is not finite."""
        for quantity, values in quantities.items():
            if values.dtype == np.uint8:
                continue
            # Fast path: if the sum of squares is finite, all values are.
            if not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
                place = f"environment {where[0]}" + (f", entry {where[1]}" if where[1:] else "")
                raise TrainingError(f"the {quantity} of {place} is {values[where]} at step {step}")

    def _track_episodes(
        self, rewards: FloatArray, finished: list[int], infos: dict[str, Any]
    ) -> tuple[FinishedEpisode, ...]:
        self._returns += rewards
        self._lengths += 1
        if not finished:
            return ()
        # Metrics report the original return, even if the learner's rewards are transformed.
        returns = infos["final_info"].get(OWN_RETURN, self._returns)
        ended = tuple(
            FinishedEpisode(index, float(returns[index]), int(self._lengths[index]))
            for index in finished
        )
        for index, total, length in ended:
            self.last_return = total
            self._recent.append(total)
            self._finished.append(Episode(total, length))
            self.episodes += 1
            self._returns[index] = 0.0
            self._lengths[index] = 0
        return ended

    @property
    def recent_return(self) -> float | None:
        """Mean return of the last episodes, for displays; after a resume, only of the last one."""
        return sum(self._recent) / len(self._recent) if self._recent else self.last_return

    def metrics(self) -> dict[str, float]:
        """Return means over the episodes that ended since the last `pop_metrics`."""
        episodes = self._finished
        if not episodes:
            return {}
        return {
            "rollout/return_mean": float(np.mean([episode.total for episode in episodes])),
            "rollout/length_mean": float(np.mean([episode.length for episode in episodes])),
        }

    def pop_metrics(self) -> dict[str, float]:
        """Return means over the episodes that ended since the last call."""
        means = self.metrics()
        self._finished = []
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs, including the states of the environments."""
        if self._shared is not None:
            self._shared.deliver_actions()
        states = list(self.envs.call("capture"))
        errors = [state["error"] for state in states if "error" in state]
        return {
            "environments": None if errors else states,
            "environments_error": errors[0] if errors else None,
            "obs": self._obs.astype(np.float32, copy=False),
            **({} if self._legal is None else {"legal_actions": self._legal}),
            "explorer": self.explorer.state_dict(),
            "returns": self._returns,
            "lengths": self._lengths,
            "finished": self._finished,
            "episodes": self.episodes,
            "last_return": self.last_return,
            **({} if self._observer is None else self._observer.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any], step: int) -> None:
        """Continue the running episodes, or start new ones if they could not be saved."""
        self.explorer.load_state_dict(state["explorer"])
        self._finished = [
            Episode(real_number(total, "finished"), whole_number(length, "finished", least=1))
            for total, length in state["finished"]
        ]
        self.episodes = whole_number(state["episodes"], "episodes")
        last = state["last_return"]
        self.last_return = None if last is None else real_number(last, "last_return")
        if state["environments"] is None and len(self.buffer) == 0:
            self.reset()  # no step was taken yet, so the first episodes are the same
            return
        if state["environments"] is None:
            self.inexact_restore = str(state["environments_error"])
            self.buffer.cut_episodes(self.num_envs)
            self.reset(step)
            return
        self.reset()
        if len(state["environments"]) != self.num_envs:
            raise StateError(
                f"it has the states of {len(state['environments'])} environments, but num_envs is "
                f"{self.num_envs}"
            )
        try:
            self.envs.call("restore", state["environments"])
        except CaptureError as error:
            raise StateError(str(error)) from error
        obs = matching_array(state["obs"], self._obs.astype(np.float32, copy=False), "obs")
        with np.errstate(invalid="ignore"):
            self._obs = obs.astype(self._dtype, copy=False)
        if (self._obs != obs).any():
            raise StateError("obs contains values that are not pixels")
        if self._legal is not None:
            self._legal = matching_array(state["legal_actions"], self._legal, "legal_actions")
            if not self._legal.any(axis=1).all():
                raise StateError("legal_actions contains a row without a legal action")
        self._returns = matching_array(state["returns"], self._returns, "returns")
        self._lengths = matching_array(state["lengths"], self._lengths, "lengths")
        if (self._lengths < 0).any():
            raise StateError(
                f"lengths contains {self._lengths.min()}, but lengths cannot be negative"
            )
        if self._observer is not None:
            self._observer.load_state_dict(state)
        self._restored = True

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
