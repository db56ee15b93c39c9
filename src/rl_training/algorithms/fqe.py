"""The critics of fitted Q evaluation (arXiv 1903.08738).

They are a learner like any other, except that no policy is improved. The engine samples their
batches and compiles or captures their updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.action_masks import legal_actions, next_legal_actions
from rl_training.algorithms.base import (
    Algorithm,
    Due,
    Stage,
    StagedAlgorithm,
    Terms,
    polyak_update,
    td_target,
)
from rl_training.algorithms.config import AlgorithmConfig, ValueConfig
from rl_training.models import EnsembleCritic
from rl_training.models.network_config import default_trunk
from rl_training.types import Batch, Noise, NoiseSpec


class FQEConfig(ValueConfig):
    """Hyperparameters of fitted Q evaluation."""

    tau: float = Field(default=0.02, gt=0, le=1)
    """Polyak rate τ of the target critics."""
    num_critics: int = Field(default=2, gt=0)
    """Number of critics; each is fitted to its own target."""


def td_loss(q: Tensor, target: Tensor) -> Tensor:
    """Return Σ_i mean (Q_i(s, a) − y_i)² with one target per critic; both are ``[N, B]``."""
    return (q - target).square().mean(-1).sum(-1)


class FittedQ(StagedAlgorithm):
    """Critics of a frozen policy, on observations normalized like the policy's.

    A value is `value_shift` + `value_scale` · network. Values start near the mean return of the
    data, and the networks learn the difference, independently of the scale of the rewards.
    """

    name: ClassVar[str] = "fqe"
    config_class: ClassVar[type[AlgorithmConfig]] = FQEConfig
    config: FQEConfig
    target: Tensor
    value_shift: Tensor
    value_scale: Tensor

    def __init__(self, policy: Algorithm, config: FQEConfig, generator: torch.Generator) -> None:
        super().__init__(policy.spec, config, generator)
        self.policy = policy
        self.obs_shift.copy_(policy.obs_shift)
        self.obs_scale.copy_(policy.obs_scale)
        sizes = policy.spec.obs_dim, policy.spec.action_dim, config.hidden_sizes
        trunk = default_trunk(config.hidden_sizes, policy.spec.entries)
        self.critic = EnsembleCritic(*sizes, config.num_critics, trunk=trunk, generator=generator)
        self.register_buffer("target", self.critic.flat.detach().clone())
        self.register_buffer("value_shift", torch.zeros(()))
        self.register_buffer("value_scale", torch.ones(()))
        self.add_optimizer("critic", self.critic.flat)

    def set_value_scale(self, mean: float, deviation: float) -> None:
        """Set the initial value and the scale of the values."""
        self.value_shift.fill_(mean)
        self.value_scale.fill_(deviation)

    def values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q_i(s, a) in the units of the rewards, ``[N, B]``."""
        if self.spec.discrete:
            actions = self._one_hot(actions).to(obs.dtype)
        return self.value_shift + self.value_scale * self.critic.q_values(obs, actions, flat)

    def _one_hot(self, actions: Tensor) -> Tensor:
        """Return one input per action, ``[B, action_dim]``.

        `one_hot` would read the values on the host.
        """
        kinds = torch.arange(self.spec.action_dim, dtype=actions.dtype, device=actions.device)
        if not self.spec.action_choices:
            return actions == kinds
        ends = torch.tensor(self.spec.action_choices, device=actions.device).cumsum(0)
        begins = ends - ends.diff(prepend=ends.new_zeros(1))
        return ((actions + begins).unsqueeze(-1) == kinds).any(-2)

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        """Return the policy's actions."""
        masks = {} if legal is None else {"legal": legal}
        return self.policy.choose_actions(obs, deterministic=deterministic, noise=noise, **masks)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare the policy's noise."""
        return self.policy.act_noise(batch_size)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: the policy acts without exploration."""
        return {}

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Return y_i = r + γ (1 − d) Q̄_i(s', π(s')), ``[N, B]``; π is the evaluated policy."""
        legal = next_legal_actions(batch)
        actions = self.choose_actions(batch.next_obs, deterministic=True, noise=None, legal=legal)
        next_q = self.values(batch.next_obs, actions, self.target)
        return td_target(batch.rewards, batch.terminations, next_q, gamma=self.config.gamma)

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the critics' stage, in units of `value_scale`."""
        q = self.values(batch.obs, batch.actions)
        loss = td_loss(q, self.targets(batch))
        metrics = {"loss/critic": loss, "q/mean": q.detach().mean((-2, -1))}
        terms = Terms(loss / self.value_scale.square(), metrics)
        yield Stage(terms, {"critic": self.critic.flat})

    def move_targets(self, due: Due) -> None:
        """Update the target critics by Polyak averaging."""
        polyak_update(self.target, self.critic.flat, self.config.tau)

    @torch.no_grad()
    def policy_values(self, batch: Batch) -> Tensor:
        """Return Q_i(s, π(s)) of every critic at the observations of a batch, ``[N, B]``."""
        legal = legal_actions(batch)
        actions = self.choose_actions(batch.obs, deterministic=True, noise=None, legal=legal)
        return self.values(batch.obs, actions)
