"""Exploration: choose actions for observations, to be taken in the next step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.boundary.values import StateError, matching_array
from rl_training.data.generators import generator_state, restore_generator
from rl_training.runtime.engine import capture
from rl_training.types import FloatArray


class Explorer:
    """Chooses actions for all environments, with the exploring policy or at random."""

    lag = 0
    """Number of steps by which the acting policy is behind the updates; always constant."""

    def __init__(self, algorithm: Algorithm, num_envs: int, generator: torch.Generator) -> None:
        self.generator = generator
        self._algorithm = algorithm
        self._num_envs = num_envs
        self._noise_spec = algorithm.act_noise(num_envs)
        self._actions: FloatArray | None = None

    @property
    def has_actions(self) -> bool:
        """Whether requested actions are waiting for the next step."""
        return self._actions is not None

    def request_actions(self, obs: FloatArray, *, random: bool) -> None:
        """Choose actions for ``obs``, with the current policy or at random."""
        if random:
            self._actions = self._random_actions()
        else:
            tensor = torch.from_numpy(obs).to(self.generator.device)
            self._actions = self._explore(tensor, self.generator).cpu().numpy()

    def take_actions(self) -> FloatArray:
        """Return the requested actions and clear them."""
        assert self._actions is not None, "call request_actions() before take_actions()"
        actions, self._actions = self._actions, None
        return actions

    def _random_actions(self) -> FloatArray:
        spec, device = self._algorithm.spec, self.generator.device
        shape = (self._num_envs, spec.action_width)
        uniform = torch.rand(shape, generator=self.generator, device=device)
        if spec.discrete:
            return (uniform * spec.action_dim).floor().cpu().numpy()
        return (uniform * 2.0 - 1.0).cpu().numpy()

    def _explore(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        noise = draw_noise(self._noise_spec, generator)
        return self._algorithm.act(obs, deterministic=False, noise=noise)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator, and actions that were requested but not taken yet."""
        self._actions = answer = self.take_actions() if self.has_actions else None
        return {"generator": generator_state(self.generator), "answer": answer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the generator and the pending actions."""
        restore_generator(self.generator, state["generator"])
        answer, spec = state.get("answer"), self._algorithm.spec
        if answer is not None:
            like = np.empty((self._num_envs, spec.action_width), dtype=np.float32)
            answer = matching_array(answer, like, "answer")
            if spec.discrete and not np.isin(answer, np.arange(spec.action_dim)).all():
                raise StateError(f"answer contains actions outside 0 to {spec.action_dim - 1}")
        self._actions = answer


class GraphedExplorer(Explorer):
    """Runs the exploring policy as one CUDA graph: noise, network and transfers.

    Actions are requested before the updates of a step start, so that environments can step while
    the GPU computes updates. The acting policy is therefore always one step behind.
    """

    lag = 1

    def __init__(self, algorithm: Algorithm, num_envs: int, generator: torch.Generator) -> None:
        super().__init__(algorithm, num_envs, generator)
        obs_dim = algorithm.spec.obs_dim
        self._host_obs = torch.zeros(num_envs, obs_dim, pin_memory=True)
        self._obs = torch.zeros(num_envs, obs_dim, device=generator.device)
        self._host_actions = torch.empty(0)
        self._replay: Callable[[], None] | None = None
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._in_flight = False

    @property
    def has_actions(self) -> bool:
        """Whether requested actions are waiting for the next step."""
        return self._in_flight or super().has_actions

    def request_actions(self, obs: FloatArray, *, random: bool) -> None:
        """Start choosing actions; the GPU does this after the updates that are already queued."""
        if random:
            super().request_actions(obs, random=True)
            return
        if self._replay is None:
            self._replay = self._capture()
        self._host_obs.numpy()[:] = obs
        self._replay()
        self._done.record()
        self._in_flight = True

    def take_actions(self) -> FloatArray:
        """Wait for the requested actions, return them and clear them."""
        if not self._in_flight:
            return super().take_actions()
        self._done.synchronize()
        self._in_flight = False
        return self._host_actions.numpy().copy()

    def _capture(self) -> Callable[[], None]:
        scratch = torch.Generator(self.generator.device).manual_seed(0)
        actions = self._explore(self._obs, scratch)  # loads the kernels, which a capture cannot do
        self._host_actions = torch.empty(actions.shape, dtype=actions.dtype, pin_memory=True)

        def act() -> None:
            self._obs.copy_(self._host_obs, non_blocking=True)
            chosen = self._explore(self._obs, self.generator)
            self._host_actions.copy_(chosen, non_blocking=True)

        try:
            return capture(act, self.generator)
        except torch.OutOfMemoryError:
            warnings.warn(
                "there is not enough GPU memory to capture the acting policy as a CUDA graph: it "
                "runs without a graph.",
                stacklevel=2,
            )
            return act
