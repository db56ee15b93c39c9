"""CrossQ (arXiv 1902.05605): SAC with batch renormalization instead of target networks.

The stages of an update are SAC's: critics, actor, temperature. There are no targets to move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import Stage, Terms, td_terms
from rl_training.algorithms.config import AlgorithmConfig, LearningRate, Widths
from rl_training.algorithms.sac import (
    SACAlgorithm,
    SACConfig,
    Temperature,
    actor_loss,
    policy_terms,
    soft_batch_target,
)
from rl_training.models import GaussianActorCritic, MLPSACModel
from rl_training.types import ActionKind, Batch, EnvSpec, Metrics, Mode, Noise

BETAS = (0.5, 0.999)
"""Decay rates of Adam's moments for the actor and the critics."""


class CrossQConfig(SACConfig):
    """Hyperparameters of CrossQ (docs/algorithms/crossq.md)."""

    network_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"all": {"trunk": "batch_norm"}}
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"hidden_sizes": "critic_hidden_sizes"}
    }

    learning_rate: LearningRate = 1e-3
    """Learning rate of Adam, for every network; a schedule scales it."""
    critic_hidden_sizes: Widths = (2_048, 2_048)
    """Widths of the critics' hidden layers."""
    policy_delay: int = Field(default=3, gt=0)
    """Number of critic updates per update of the actor and the temperature."""

    tau: float = Field(default=0.005, gt=0, le=1)
    """Has no effect: CrossQ has no target networks."""

    def _network_options(self, name: str, has_images: bool) -> dict[str, Any]:
        """Use LayerNorm in networks for images, which cannot have batch renormalization."""
        options = super()._network_options(name, has_images)
        return {"layer_norm": True} | options if options["trunk"] == "cnn" else options


# --- Losses: pure functions of tensors ----------------------------------------


class JointBatch(NamedTuple):
    """(s, a) and (s', a') as one batch of twice the size, with a' drawn from the policy.

    In training mode, both halves share the statistics of the batch. Normalizing them separately
    would hide the difference between the recorded actions and the policy's.
    """

    obs: Tensor  # [2B, obs_dim]
    actions: Tensor  # [2B, action_dim]
    next_log_prob: Tensor  # [B]


@torch.no_grad()
def joint_batch(model: GaussianActorCritic, batch: Batch, noise: Noise) -> JointBatch:
    """Draw actions at s' and join both states."""
    following = model.sample(batch.next_obs, noise["next_action"])
    obs = torch.cat((batch.obs, batch.next_obs))
    actions = torch.cat((batch.actions, following.actions))
    return JointBatch(obs, actions, following.log_prob)


def joint_values(
    model: GaussianActorCritic, batch: Batch, noise: Noise, *, alpha: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """Return Q_i(s, a) ``[N, B]`` and SAC's soft target ``[B]``, from one pass over s and s'."""
    obs, actions, next_log_prob = joint_batch(model, batch, noise)
    q, next_q = model.q_values(obs, actions).chunk(2, dim=-1)  # [N, B] each
    next_q = next_q.detach()
    return q, soft_batch_target(batch, next_q, next_log_prob, alpha=alpha, gamma=gamma)


def crossq_terms(
    model: GaussianActorCritic, batch: Batch, noise: Noise, *, alpha: Tensor, gamma: float
) -> Terms:
    """Compute the squared error of every critic to the target of the same pass."""
    q, target = joint_values(model, batch, noise, alpha=alpha, gamma=gamma)
    return td_terms(q, batch, target)


def crossq_loss(
    model: GaussianActorCritic,
    batch: Batch,
    noise: Noise,
    *,
    gamma: float = 0.99,
    alpha: Tensor,
    log_alpha: Tensor | None = None,
    target_entropy: float = 0.0,
) -> Metrics:
    """Compute CrossQ's losses at the current parameters, from the same terms as `update`.

    Like every pass in training mode, this updates the running statistics of the networks.
    """
    critics = crossq_terms(model, batch, noise, alpha=alpha, gamma=gamma)
    temperature = Temperature(alpha, log_alpha, target_entropy)
    return critics.losses | policy_terms(model, batch, noise, actor_loss, temperature).losses


# --- Learner ------------------------------------------------------------------


class CrossQAlgorithm(SACAlgorithm):
    """CrossQ."""

    name: ClassVar[str] = "crossq"
    title: ClassVar[str] = "CrossQ"
    paper: ClassVar[str] = "arXiv 1902.05605"
    mode: ClassVar[Mode] = "online"
    actions: ClassVar[ActionKind] = "continuous"
    summary: ClassVar[str] = "SAC with batch renormalization instead of target networks."
    config_class: ClassVar[type[AlgorithmConfig]] = CrossQConfig
    config: CrossQConfig

    def __init__(self, spec: EnvSpec, config: CrossQConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"actor": config.policy_delay}

    def build_model(self, generator: torch.Generator) -> GaussianActorCritic:
        """Build SAC's networks, without target critics."""
        return MLPSACModel(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=self.config.num_critics,
            trunks=self.config.trunks(self.spec),
            target=False,
            generator=generator,
        )

    def add_optimizer(self, key: str, parameter: Tensor, **options: Any) -> None:
        """Use Adam with less momentum, except for the temperature."""
        defaults = {} if key == "temperature" else {"betas": BETAS}
        super().add_optimizer(key, parameter, **(defaults | options))

    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the soft target."""
        settings: dict[str, Any] = {"alpha": self.alpha, "gamma": self.config.gamma}
        return joint_values(self.model, batch, noise, **settings)[1].detach()

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic toward the soft target of the same pass."""
        gamma = self.config.gamma
        terms = crossq_terms(self.model, batch, noise, alpha=self.alpha, gamma=gamma)
        return Stage(terms, {"critic": self.model.critic.flat})
