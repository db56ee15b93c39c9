"""The policy of IQL and AWAC: a Gaussian around a tanh mean, not squashed itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.actors import ActionSample, GaussianActor, gaussian_log_prob


class TanhMeanGaussianActor(GaussianActor):
    """N(tanh(f(s)), σ) with a log σ that is a parameter of its own, the same in every state.

    Its density is finite at ±1, where a squashed Gaussian's is not: a saturated dataset action is
    no trouble. log σ stands behind the network's layers in the flat vector and is clamped to
    ``log_std_bounds``. It starts at 0, or amid the bounds where 0 is not between them: at a bound a
    clamp would have no gradient, or one way only.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        log_std_bounds: tuple[float, float],
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, hidden_sizes, action_dim, generator=generator)
        self.log_std_bounds = log_std_bounds
        self.parts = [self.flat.shape[-1], action_dim]
        low, high = log_std_bounds
        start = 0.0 if low < 0.0 < high else (low + high) / 2
        flat = torch.full((sum(self.parts),), start)
        flat[: self.parts[0]] = self.flat.detach()
        self.flat = nn.Parameter(flat)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The layers' tensors, in the whole vector or in its part that holds the layers."""
        layers = sum(self.sizes)
        return super().views(flat if flat.shape[-1] == layers else flat.narrow(-1, 0, layers))

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``[B, action_dim]`` after its tanh, and log σ ``[1, action_dim]``."""
        layers, log_std = self.flat.split_with_sizes(self.parts, dim=-1)
        outputs: Tensor = self(obs, layers)
        return outputs.tanh(), log_std.unsqueeze(-2).clamp(*self.log_std_bounds)

    def mode(self, obs: Tensor) -> Tensor:
        """The deterministic action, the mean."""
        return self.distribution(obs)[0]

    def place(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """The Gaussian's draw, clipped to [-1, 1]."""
        return torch.addcmul(mean, log_std.exp(), noise).clamp(-1.0, 1.0)

    def density(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """The Gaussian's own."""
        return gaussian_log_prob((actions - mean) * (-log_std).exp(), log_std)

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Reparametrised actions, not clipped: their density is that of the Gaussian."""
        mean, log_std = self.distribution(obs)
        actions = torch.addcmul(mean, log_std.exp(), noise)
        return ActionSample(actions, gaussian_log_prob(noise, log_std))
