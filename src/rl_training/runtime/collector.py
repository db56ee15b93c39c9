"""Collection: the policy acts in the training environments, transitions go to the replay."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.data import ReplayBuffer
from rl_training.envs import ActionScaler, TrainingEnvs
from rl_training.errors import TrainingError
from rl_training.runtime.engine import generator_state, restore_generator
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import EnvSpec, FloatArray


class Collector:
    """Steps vector environments with SAME_STEP resets; keeps the running episodes' books."""

    def __init__(
        self,
        envs: TrainingEnvs,
        algorithm: Algorithm,
        buffer: ReplayBuffer,
        spec: EnvSpec,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.envs = envs
        self.num_envs = envs.num_envs
        self.episodes = 0
        self.inexact_restore: str | None = None
        """After a resume: why the environments could not be restored exactly, if so."""
        self._algorithm = algorithm
        self._buffer = buffer
        self._spec = spec
        self._scaler = ActionScaler(spec)
        self._seed = seed
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(
            derive_seed(seed, Stream.EXPLORATION)
        )
        self._noise_spec = algorithm.act_noise(self.num_envs)
        self._obs: FloatArray = np.empty((0,), dtype=np.float32)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._finished: list[tuple[float, int]] = []
        self.last_return: float | None = None

    def reset(self, *extra: int) -> None:
        """Begin new episodes in every environment, from the run's seed."""
        seed = derive_seed(self._seed, Stream.ENVIRONMENT, *extra)
        obs, _ = self.envs.reset(seed=seed)
        self._obs = np.array(obs, dtype=np.float32)
        self._check_finite(extra[0] if extra else 0, observation=self._obs)
        self._returns[:] = 0.0
        self._lengths[:] = 0

    def step(self, step: int, *, random: bool) -> int:
        """One step of every environment, stored; returns how many transitions that were."""
        actions = self._random_actions() if random else self._policy_actions()
        self._check_finite(step + 1, action=actions)
        obs, rewards, terminations, truncations, infos = self.envs.step(
            self._scaler.to_env(actions)
        )
        next_obs = np.array(obs, dtype=np.float32)
        true_next = self._true_next_obs(next_obs, terminations | truncations, infos)
        rewards32 = np.asarray(rewards, dtype=np.float32)
        self._check_finite(step + 1, observation=true_next, reward=rewards32)
        if true_next is not next_obs:  # the first observations of new episodes are in there
            self._check_finite(step + 1, observation=next_obs)
        self._buffer.add(self._obs, actions, rewards32, true_next, terminations, truncations)
        self._obs = next_obs
        self._keep_books(rewards, terminations | truncations)
        return self.num_envs

    def _random_actions(self) -> FloatArray:
        shape = (self.num_envs, self._spec.action_dim)
        uniform = torch.rand(shape, generator=self._generator, device=self._device)
        return (uniform * 2.0 - 1.0).cpu().numpy()

    def _policy_actions(self) -> FloatArray:
        noise = draw_noise(self._noise_spec, self._generator)
        # Rows of a goal environment end with the achieved goal, which no policy sees.
        obs = torch.from_numpy(self._obs[:, : self._spec.obs_dim]).to(self._device)
        actions = self._algorithm.act(obs, deterministic=False, noise=noise)
        return actions.cpu().numpy()

    @staticmethod
    def _true_next_obs(obs: FloatArray, ended: Any, infos: dict[str, Any]) -> FloatArray:
        """The observation that followed the action: not the first one of the next episode."""
        if not ended.any():
            return obs
        true_next = obs.copy()
        for index in np.flatnonzero(ended):
            true_next[index] = infos["final_obs"][index]
        return true_next

    def _check_finite(self, step: int, **quantities: FloatArray) -> None:
        for quantity, values in quantities.items():
            if not np.isfinite(values).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
                place = f"environment {where[0]}" + (f", entry {where[1]}" if where[1:] else "")
                raise TrainingError(f"the {quantity} of {place} is {values[where]} at step {step}")

    def _keep_books(self, rewards: Any, ended: Any) -> None:
        self._returns += rewards
        self._lengths += 1
        for index in np.flatnonzero(ended):
            self.last_return = float(self._returns[index])
            self._finished.append((self.last_return, int(self._lengths[index])))
            self.episodes += 1
            self._returns[index] = 0.0
            self._lengths[index] = 0

    def pop_metrics(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call."""
        if not self._finished:
            return {}
        returns, lengths = zip(*self._finished, strict=True)
        self._finished = []
        return {
            "rollout/return_mean": float(np.mean(returns)),
            "rollout/length_mean": float(np.mean(lengths)),
        }

    # --- Saving -------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything a continued run needs, the environments' running state included."""
        states = list(self.envs.call("capture"))
        errors = [state["error"] for state in states if "error" in state]
        return {
            "environments": None if errors else states,
            "environments_error": errors[0] if errors else None,
            "obs": self._obs,
            "generator": generator_state(self._generator),
            "returns": self._returns,
            "lengths": self._lengths,
            "finished": self._finished,
            "episodes": self.episodes,
            "last_return": self.last_return,
        }

    def load_state_dict(self, state: dict[str, Any], step: int) -> None:
        """Continue the running episodes, or begin new ones where they could not be saved."""
        restore_generator(self._generator, state["generator"])
        self._finished = [(float(r), int(n)) for r, n in state["finished"]]
        self.episodes = int(state["episodes"])
        last = state["last_return"]
        self.last_return = None if last is None else float(last)
        if state["environments"] is None:
            self.inexact_restore = str(state["environments_error"])
            self._buffer.cut_episodes(self.num_envs)
            self.reset(step)
            return
        self.reset()
        self.envs.call("restore", state["environments"])
        self._obs = _fitting(state["obs"], self._obs)
        self._returns = _fitting(state["returns"], self._returns)
        self._lengths = _fitting(state["lengths"], self._lengths)

    def close(self) -> None:
        """Close the environments."""
        with contextlib.suppress(OSError, EOFError):  # a worker that is gone needs no closing
            self.envs.close()


def _fitting(value: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A saved array in place of ``like``."""
    array = np.asarray(value, dtype=like.dtype)
    if array.shape != like.shape or not np.isfinite(array).all():
        raise ValueError(f"{array.dtype}{list(array.shape)} does not fit {list(like.shape)}")
    return array
