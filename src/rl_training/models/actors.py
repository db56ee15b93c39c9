"""Policy networks for actions in [-1, 1]."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rl_training.models.network import Network, State
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp

LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0
ACTION_BOUND = 1.0 - 1e-5
"""Dataset actions are clipped to ± this before atanh, since the density at ±1 is infinite."""


class ActionSample(NamedTuple):
    """Actions with their log-probabilities."""

    actions: Tensor  # [..., B, action_dim]
    log_prob: Tensor  # [..., B]


def gaussian_log_prob(standardized: Tensor, log_std: Tensor) -> Tensor:
    """Return log N(u; μ, σ), summed over the action dimensions, from (u − μ)/σ and log σ."""
    per_dim = torch.addcmul(log_std, standardized, standardized, value=0.5)
    return -per_dim.sum(-1) - 0.5 * math.log(2.0 * math.pi) * standardized.shape[-1]


def tanh_log_det(pre_tanh: Tensor) -> Tensor:
    """Return log |d tanh(u)/du|, summed over the action dimensions, stable for large |u|.

    Computing log(1 − a² + ε) instead would lose the tails and bias the entropy.
    """
    inner = (pre_tanh + F.softplus(-2.0 * pre_tanh)).sum(-1)
    return 2.0 * (math.log(2.0) * pre_tanh.shape[-1] - inner)


class Actor(Network, ABC):
    """A policy network with deterministic and exploratory actions.

    The network is a ReLU perceptron with ``hidden_sizes``, unless ``trunk`` is given.
    """

    outputs_per_action: ClassVar[int] = 1

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        outputs = self.outputs_per_action * action_dim
        super().__init__(
            (trunk or plain_mlp(hidden_sizes)).build(Sizes(obs_dim, outputs)), generator
        )

    @abstractmethod
    def mode(self, obs: Tensor) -> Tensor:
        """Return deterministic actions, ``[B, action_dim]``."""

    @abstractmethod
    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return exploratory actions from normal ``noise`` ``[B, action_dim]``."""


class GaussianActor(Actor):
    """A stochastic policy: a Gaussian whose samples are mapped to [-1, 1]."""

    @abstractmethod
    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log σ of the Gaussian."""

    @abstractmethod
    def to_actions(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """Return actions in [-1, 1] from a `distribution` and standard-normal ``noise``."""

    @abstractmethod
    def log_density(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density of actions in [-1, 1] under a `distribution`, ``[B]``."""

    @abstractmethod
    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Return reparameterized actions from standard-normal ``noise`` ``[B, action_dim]``."""

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return actions without log-probabilities, which would dominate the cost of acting."""
        return self.to_actions(*self.distribution(obs), noise)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density of actions in [-1, 1], ``[B]``."""
        return self.log_density(*self.distribution(obs), actions)


class SquashedGaussianActor(GaussianActor):
    """The tanh-Gaussian policy of SAC (arXiv 1812.05905, appendix C).

    log σ is clipped to [−20, 2]. With ``soft_log_std_bounds``, a tanh maps it into these bounds
    instead, so that its gradient does not vanish abruptly.
    """

    outputs_per_action: ClassVar[int] = 2

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        soft_log_std_bounds: tuple[float, float] | None = None,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, trunk=trunk, generator=generator)
        self.soft_log_std_bounds = soft_log_std_bounds

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log σ before the tanh, each ``[B, action_dim]``."""
        mean, log_std = self(obs).chunk(2, dim=-1)
        if self.soft_log_std_bounds is None:
            return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        low, high = self.soft_log_std_bounds
        return mean, low + 0.5 * (high - low) * (1.0 + log_std.tanh())

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Return reparameterized actions from standard-normal ``noise`` ``[B, action_dim]``."""
        return self.reparameterize(*self.distribution(obs), noise)

    def reparameterize(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> ActionSample:
        """Return actions of a `distribution` from standard-normal ``noise``."""
        pre_tanh = torch.addcmul(mean, log_std.exp(), noise)
        log_prob = gaussian_log_prob(noise, log_std) - tanh_log_det(pre_tanh)
        return ActionSample(pre_tanh.tanh(), log_prob)

    def to_actions(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """Return the actions of `sample`: the tanh of a Gaussian sample."""
        return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def mode(self, obs: Tensor) -> Tensor:
        """Return the tanh of the mean."""
        return self.distribution(obs)[0].tanh()

    def log_density(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density, with the change of variables for the tanh."""
        pre_tanh = actions.clamp(-ACTION_BOUND, ACTION_BOUND).atanh()
        standardized = (pre_tanh - mean) * (-log_std).exp()
        return gaussian_log_prob(standardized, log_std) - tanh_log_det(pre_tanh)


class TanhMeanGaussianActor(GaussianActor):
    """N(tanh(f(s)), σ) with a state-independent log σ.

    Unlike a squashed Gaussian's, its density is finite at ±1, so saturated dataset actions are
    not a problem. log σ is a parameter that follows the network's layers in the flat vector and is
    clamped to ``log_std_bounds``. It starts at 0, or midway between the bounds if they exclude 0:
    at a bound, the gradient of the clamp would be missing or one-sided.
    """

    log_std_bounds: tuple[float, float]

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        log_std_bounds: tuple[float, float],
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, trunk=trunk, generator=generator)
        self.log_std_bounds = log_std_bounds
        self.parts = [self.flat.shape[-1], action_dim]
        low, high = log_std_bounds
        start = 0.0 if low < 0.0 < high else (low + high) / 2
        flat = torch.full((sum(self.parts),), start)
        flat[: self.parts[0]] = self.flat.detach()
        self.flat = nn.Parameter(flat)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the layers' tensors, from the whole vector or from its part for the layers."""
        layers = sum(self.sizes)
        return super().views(flat if flat.shape[-1] == layers else flat.narrow(-1, 0, layers))

    def named_tensors(self, flat: Tensor, state: State) -> dict[str, Tensor]:
        """Return the layers' tensors and log σ."""
        log_std = flat.split_with_sizes(self.parts, dim=-1)[1]
        return super().named_tensors(flat, state) | {"log_std": log_std}

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean after the tanh ``[B, action_dim]`` and log σ ``[1, action_dim]``."""
        layers, log_std = self.flat.split_with_sizes(self.parts, dim=-1)
        outputs: Tensor = self(obs, layers)
        return outputs.tanh(), log_std.unsqueeze(-2).clamp(*self.log_std_bounds)

    def mode(self, obs: Tensor) -> Tensor:
        """Return the mean."""
        return self.distribution(obs)[0]

    def to_actions(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """Return Gaussian samples, clipped to [-1, 1]."""
        return torch.addcmul(mean, log_std.exp(), noise).clamp(-1.0, 1.0)

    def log_density(self, mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
        """Return the Gaussian log-density."""
        return gaussian_log_prob((actions - mean) * (-log_std).exp(), log_std)

    def sample(self, obs: Tensor, noise: Tensor) -> ActionSample:
        """Return reparameterized actions without clipping, so that the Gaussian density applies."""
        mean, log_std = self.distribution(obs)
        actions = torch.addcmul(mean, log_std.exp(), noise)
        return ActionSample(actions, gaussian_log_prob(noise, log_std))


class DeterministicActor(Actor):
    """The deterministic tanh policy of DDPG and TD3 (arXiv 1509.02971)."""

    def mode(self, obs: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return the action μ(s), ``[B, action_dim]``."""
        outputs: Tensor = self(obs, flat)
        return outputs.tanh()

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return the action plus ``noise``, which is already scaled, clipped to [-1, 1]."""
        return (self.mode(obs) + noise).clamp_(-1.0, 1.0)
