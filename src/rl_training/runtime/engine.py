"""The update engine: draws indices and noise, runs updates, keeps the sums of their metrics."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.errors import TrainingError
from rl_training.types import Sampler


def generator_state(generator: torch.Generator) -> np.ndarray[Any, Any]:
    """A generator's state as an array of bytes."""
    return generator.get_state().numpy()


def restore_generator(generator: torch.Generator, state: np.ndarray[Any, Any]) -> None:
    """Put a generator back into a saved state; one of another device gives a new seed."""
    if state.shape == generator_state(generator).shape:
        generator.set_state(torch.from_numpy(np.asarray(state, dtype=np.uint8)))
    else:
        generator.manual_seed(zlib.crc32(state.tobytes()))


class Engine:
    """Runs an algorithm's updates eagerly, all randomness from one saved generator."""

    def __init__(
        self,
        algorithm: Algorithm,
        sampler: Sampler,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.algorithm = algorithm
        self.sampler = sampler
        self.generator = torch.Generator(device).manual_seed(seed)
        self.updates = 0
        self._batch_size = algorithm.config.batch_size
        self._noise_spec = algorithm.noise(self._batch_size)
        self._on_host = self.generator.device.type == "cpu"
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, int] = {}

    def run(self, num_updates: int) -> None:
        """Make ``num_updates`` updates; their metrics stay on the device."""
        for _ in range(num_updates):
            batch = self.sampler.sample(self._batch_size, self.generator)
            noise = draw_noise(self._noise_spec, self.generator)
            phase = self.updates % self.algorithm.period
            metrics = self.algorithm.update(batch, noise, phase=phase)
            self.updates += 1
            for key, value in metrics.items():
                # On the host a number is at hand; on a GPU asking for it would stall the device.
                amount = value.item() if self._on_host else value.double()
                self._sums[key] = self._sums.get(key, 0.0) + amount
                self._counts[key] = self._counts.get(key, 0) + 1

    def check_finite(self) -> None:
        """Raise if any metric since the last `pop_metrics` was not finite (this waits for them)."""
        for key, value in self._sums.items():
            if not math.isfinite(value):
                raise TrainingError(f"{key} is {float(value)} by update {self.updates}")

    def pop_metrics(self) -> dict[str, float]:
        """Means over the updates since the last call."""
        means = {key: float(value) / self._counts[key] for key, value in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Counters, generator and the sums of an unfinished logging interval."""
        return {
            "updates": self.updates,
            "generator": generator_state(self.generator),
            "sums": {key: float(value) for key, value in self._sums.items()},
            "counts": dict(self._counts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.updates = int(state["updates"])
        if self.updates < 0 or not all(map(math.isfinite, state["sums"].values())):
            raise ValueError("the counts or sums of the updates are impossible")
        restore_generator(self.generator, state["generator"])
        self._sums = {key: float(value) for key, value in state["sums"].items()}
        self._counts = {key: int(count) for key, count in state["counts"].items()}
