"""Exploration: choose actions for observations, to be taken in the next step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.action_masks import uniform_actions
from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.algorithms.config import CollectionConfig
from rl_training.boundary.values import StateError, matching_array
from rl_training.data.generators import generator_state, restore_generator
from rl_training.runtime.engine import capture
from rl_training.runtime.held_noise import HeldNoise
from rl_training.types import BoolArray, FloatArray, NoiseSpec, ObsArray


class Explorer:
    """Chooses actions for all environments, with the exploring policy or at random."""

    lag = 0
    """Number of steps by which the acting policy is behind the updates; always constant."""

    def __init__(self, algorithm: Algorithm, num_envs: int, generator: torch.Generator) -> None:
        self.generator = generator
        self._algorithm = algorithm
        self._num_envs = num_envs
        self._noise_spec = algorithm.act_noise(num_envs)
        self._held: HeldNoise | None = None
        config = algorithm.config
        if isinstance(config, CollectionConfig) and config.exploration_hold > 1:
            longest, device = config.exploration_hold, generator.device
            self._held = HeldNoise(self._noise_spec, num_envs, longest, device)
            self._noise_spec = self._held.spec
        self._actions: FloatArray | None = None

    @property
    def has_actions(self) -> bool:
        """Whether requested actions are waiting for the next step."""
        return self._actions is not None

    def request_actions(
        self, obs: ObsArray, *, random: bool, legal: BoolArray | None = None
    ) -> None:
        """Choose actions for ``obs``, with the current policy or at random.

        Observations that contain only images are uint8. With action masks, ``legal`` are the legal
        actions, ``[num_envs, actions]``.
        """
        device = self.generator.device
        mask = None if legal is None else torch.from_numpy(legal).to(device, torch.float32)
        if random:
            self._actions = self._random_actions(mask)
        else:
            tensor = torch.from_numpy(obs).to(device)
            self._actions = self._explore(tensor, self.generator, mask).cpu().numpy()

    def take_actions(self) -> FloatArray:
        """Return the requested actions and clear them."""
        assert self._actions is not None, "call request_actions() before take_actions()"
        actions, self._actions = self._actions, None
        return actions

    def receive_actions(self, actions: FloatArray) -> None:
        """Take over actions that were chosen elsewhere, by the program of a population."""
        self._actions = actions

    @property
    def noise_spec(self) -> NoiseSpec:
        """The noise that choosing actions draws."""
        return self._noise_spec

    @property
    def held(self) -> HeldNoise | None:
        """Noise that lasts for several steps, if any."""
        return self._held

    def _random_actions(self, legal: Tensor | None) -> FloatArray:
        spec, device = self._algorithm.spec, self.generator.device
        shape = (self._num_envs, spec.action_width)
        uniform = torch.rand(shape, generator=self.generator, device=device)
        if spec.discrete:
            chosen = uniform_actions(uniform.squeeze(-1), spec.action_dim, legal)
            return chosen.unsqueeze(-1).cpu().numpy()
        return (uniform * 2.0 - 1.0).cpu().numpy()

    def _explore(
        self, obs: Tensor, generator: torch.Generator, legal: Tensor | None = None
    ) -> Tensor:
        noise = draw_noise(self._noise_spec, generator)
        if self._held is not None:
            noise = self._held.next(noise)
        obs = obs.to(torch.float32)
        return self._algorithm.act(obs, deterministic=False, noise=noise, legal=legal)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator, and actions that were requested but not taken yet."""
        self._actions = answer = self.take_actions() if self.has_actions else None
        held = {} if self._held is None else {"held_noise": self._held.state_dict()}
        return {"generator": generator_state(self.generator), "answer": answer, **held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the generator and the pending actions."""
        restore_generator(self.generator, state["generator"])
        if self._held is not None and "held_noise" in state:
            self._held.load_state_dict(state["held_noise"])
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
        spec = algorithm.spec
        dtype = torch.uint8 if spec.obs_dtype == np.uint8 else torch.float32
        self._host_obs = torch.zeros(num_envs, spec.obs_dim, dtype=dtype, pin_memory=True)
        self._obs = torch.zeros(num_envs, spec.obs_dim, dtype=dtype, device=generator.device)
        self._host_legal: Tensor | None = None
        self._legal: Tensor | None = None
        if width := spec.mask_width:
            self._host_legal = torch.ones(num_envs, width, pin_memory=True)
            self._legal = torch.ones(num_envs, width, device=generator.device)
        self._host_actions = torch.empty(0)
        self._replay: Callable[[], None] | None = None
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._in_flight = False

    @property
    def has_actions(self) -> bool:
        """Whether requested actions are waiting for the next step."""
        return self._in_flight or super().has_actions

    def request_actions(
        self, obs: ObsArray, *, random: bool, legal: BoolArray | None = None
    ) -> None:
        """Start choosing actions; the GPU does this after the updates that are already queued."""
        if random:
            super().request_actions(obs, random=True, legal=legal)
            return
        if self._replay is None:
            self._replay = self._capture()
        self._host_obs.numpy()[:] = obs
        if self._host_legal is not None:
            self._host_legal.numpy()[:] = legal
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
        # This call loads the kernels, which a capture cannot do.
        held = None if self._held is None else self._held.state_dict()
        actions = self._explore(self._obs, scratch, self._legal)
        if self._held is not None and held is not None:
            self._held.load_state_dict(held)
        self._host_actions = torch.empty(actions.shape, dtype=actions.dtype, pin_memory=True)

        def act() -> None:
            self._obs.copy_(self._host_obs, non_blocking=True)
            if self._legal is not None and self._host_legal is not None:
                self._legal.copy_(self._host_legal, non_blocking=True)
            chosen = self._explore(self._obs, self.generator, self._legal)
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
