"""Exploration noise that lasts for several steps, and so explores further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.boundary.values import StateError, matching_array
from rl_training.errors import ConfigError
from rl_training.types import Noise, NoiseField, NoiseSpec

DURATION = "held_noise/duration"
"""Name of the uniform number that determines how long new noise lasts."""


def duration_probabilities(longest: int) -> Tensor:
    """Return P(k) ∝ k⁻² for k = 1, …, ``longest``, as in εz-greedy (arXiv 2006.01782)."""
    weights = torch.arange(1, longest + 1, dtype=torch.float64).pow(-2)
    return weights / weights.sum()


def hold(
    drawn: Noise, shares: Tensor, remaining: Tensor, kept: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Advance noise that is kept by one step, in place, and return it.

    Args:
        drawn: New noise for every environment, with `DURATION`.
        shares: Shares of new noise that lasts for at most 1, 2, … steps.
        remaining: For how many more steps the noise lasts, ``[n]``.
        kept: The noise, ``[n, ...]``.
    """
    ends = remaining <= 0
    duration = 1 + (drawn[DURATION].unsqueeze(-1) >= shares).sum(-1)
    remaining.copy_(torch.where(ends, duration, remaining) - 1)
    for name, noise in kept.items():
        renewed = ends.view(*ends.shape, *(1,) * (noise.dim() - ends.dim()))
        noise.copy_(torch.where(renewed, drawn[name], noise))
    return dict(kept)


class HeldNoise:
    """Keeps each environment's noise for k steps, with P(k) ∝ k⁻² and k ≤ ``longest``.

    Its tensors are written in place and without waiting for the device, so that acting can be
    captured as a CUDA graph.
    """

    def __init__(self, spec: NoiseSpec, num_envs: int, longest: int, device: torch.device) -> None:
        for name, field in spec.items():
            if field.shape[:1] != (num_envs,):
                raise ConfigError(
                    f"exploration_hold = {longest}: the exploration noise {name!r} has the shape "
                    f"{list(field.shape)} instead of one row for each environment, so it cannot be "
                    "kept for each of them. Use exploration_hold=1."
                )
        self.spec: NoiseSpec = {**spec, DURATION: NoiseField("uniform", (num_envs,))}
        """The noise to draw in every step."""
        self._kept = {name: torch.zeros(field.shape, device=device) for name, field in spec.items()}
        self._remaining = torch.zeros(num_envs, dtype=torch.int64, device=device)
        # Without the last value, which is 1: a duration is one more than the values passed.
        shares = duration_probabilities(longest).cumsum(0)[:-1]
        self._shares = shares.to(device, torch.float32)

    def next(self, drawn: Noise) -> dict[str, Tensor]:
        """Return the noise of the next step, from newly drawn noise of `spec`."""
        return hold(drawn, self._shares, self._remaining, self._kept)

    @property
    def tensors(self) -> list[Tensor]:
        """The state: the remaining steps, ``[num_envs]``, and the noise of each name."""
        return [self._remaining, *self._kept.values()]

    @property
    def shares(self) -> Tensor:
        """Shares of new noise that lasts for at most 1, 2, … steps."""
        return self._shares

    def state_dict(self) -> dict[str, Any]:
        """Return the noise, and for how many more steps it lasts."""
        kept = {name: noise.cpu().numpy().copy() for name, noise in self._kept.items()}
        return {"noise": kept, "remaining": self._remaining.cpu().numpy().copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the noise in place."""
        if set(state["noise"]) != set(self._kept):
            raise StateError(f"the held noise has other names than {sorted(self._kept)}")
        own = self.state_dict()
        remaining = matching_array(state["remaining"], own["remaining"], "remaining")
        if (remaining < 0).any() or (remaining > len(self._shares)).any():
            raise StateError(f"remaining contains values outside 0 to {len(self._shares)}")
        self._remaining.copy_(torch.from_numpy(remaining))
        for name, kept in self._kept.items():
            values = matching_array(state["noise"][name], own["noise"][name], name)
            kept.copy_(torch.from_numpy(values))


def stack_held(noises: Sequence[HeldNoise]) -> list[Tensor]:
    """Move the `HeldNoise.tensors` of several objects into stacked tensors ``[S, ...]``.

    Each object continues with its part.
    """
    parts = [each.tensors for each in noises]
    stacked = [torch.stack(tensors) for tensors in zip(*parts, strict=True)]
    for index, tensors in enumerate(parts):
        for tensor, rows in zip(tensors, stacked, strict=True):
            tensor.data = rows[index]
    return stacked
