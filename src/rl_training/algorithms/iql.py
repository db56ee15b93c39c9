"""Implicit Q-Learning (arXiv 2110.06169): values are learned from dataset actions alone.

The stages of an update, in the order of the authors' code: value, actor, critics, targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.action_masks import legal_actions
from rl_training.algorithms.advantage import (
    AdvantageConfig,
    clipped_weights,
    imitation_terms,
)
from rl_training.algorithms.base import (
    Due,
    PolicyLearner,
    Stage,
    Terms,
    bootstrap_discount,
    critic_terms,
    polyak_update,
    td_target,
)
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.models import DiscreteIQLModel, MLPIQLModel
from rl_training.types import ActionKind, Batch, EnvSpec, Metrics, Mode, Noise, NoiseSpec

IQLModel = MLPIQLModel | DiscreteIQLModel
"""Networks for continuous or for discrete actions; the losses are the same."""


class IQLConfig(AdvantageConfig):
    """Hyperparameters of IQL (docs/algorithms/iql.md)."""

    network_names: ClassVar[tuple[str, ...]] = ("actor", "critic", "value")

    expectile: float = Field(default=0.7, gt=0, lt=1)
    """Expectile of Q(s, ·) over the dataset that V(s) estimates; 0.5 gives the mean."""
    beta: float = Field(default=3.0, gt=0)
    """Inverse temperature β of the advantages; higher values imitate more selectively."""


# --- Losses: pure functions of tensors ----------------------------------------


def expectile_loss(v: Tensor, q: Tensor, *, expectile: float) -> Tensor:
    """Return the mean of |τ − 1[u < 0]| u² with u = q − v, eq. 5; both are ``[B]``.

    ``q`` is a constant.
    """
    error = q - v
    weight = (expectile - (error < 0.0).to(error.dtype)).abs()
    return (weight * error.square()).mean(-1)


@torch.no_grad()
def dataset_q_values(model: IQLModel, batch: Batch) -> Tensor:
    """Return min_i Q̄_i(s, a) of the *target* critics at the dataset's actions, ``[B]``."""
    return model.target_q_values(batch.obs, batch.actions).amin(-2)


@torch.no_grad()
def state_values(model: IQLModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return V(s) and V(s'), each ``[B]``, from one pass over both."""
    both = model.values(torch.cat((batch.obs, batch.next_obs), dim=-2))  # [2B]
    v, next_v = both.chunk(2, dim=-1)
    return v, next_v


def value_terms(model: IQLModel, batch: Batch, q: Tensor, *, expectile: float) -> Terms:
    """Compute the expectile loss of V toward ``q`` ``[B]``."""
    v = model.values(batch.obs)
    loss = expectile_loss(v, q, expectile=expectile)
    return Terms(loss, {"loss/value": loss, "v/mean": v.detach().mean(-1)})


def dataset_log_prob(model: IQLModel, batch: Batch) -> Tensor:
    """Return log π(a|s) at the dataset's actions, ``[B]``."""
    if isinstance(model, DiscreteIQLModel):
        return model.action_logprobs(batch.obs, batch.actions, legal_actions(batch))
    return model.action_logprobs(batch.obs, batch.actions)


def policy_terms(
    model: IQLModel, batch: Batch, advantage: Tensor, *, beta: float, weight_clip: float
) -> Terms:
    """Compute the actor loss, eq. 7: advantage-weighted imitation of the dataset."""
    weights = clipped_weights(beta * advantage, clip=weight_clip)
    return imitation_terms(dataset_log_prob(model, batch), advantage, weights)


def iql_terms(
    model: IQLModel,
    batch: Batch,
    *,
    gamma: float,
    expectile: float,
    beta: float,
    weight_clip: float,
) -> Iterator[Terms]:
    """Yield the terms of value, actor and critics; the later ones use the updated V."""
    q = dataset_q_values(model, batch)
    yield value_terms(model, batch, q, expectile=expectile)
    v, next_v = state_values(model, batch)
    yield policy_terms(model, batch, q - v, beta=beta, weight_clip=weight_clip)
    discount = bootstrap_discount(batch, gamma)
    target = td_target(batch.rewards, batch.terminations, next_v, gamma=discount)  # eq. 6
    yield critic_terms(model, batch, target)


def iql_loss(
    model: IQLModel,
    batch: Batch,
    *,
    gamma: float = 0.99,
    expectile: float = 0.7,
    beta: float = 3.0,
    weight_clip: float = 100.0,
) -> Metrics:
    """Compute IQL's losses at the model's current parameters, from the same terms as `update`."""
    weighting = {"expectile": expectile, "beta": beta, "weight_clip": weight_clip}
    value, policy, critics = iql_terms(model, batch, gamma=gamma, **weighting)
    return value.losses | policy.losses | critics.losses


# --- Learner ------------------------------------------------------------------


class IQLAlgorithm(PolicyLearner):
    """Implicit Q-Learning."""

    name: ClassVar[str] = "iql"
    title: ClassVar[str] = "Implicit Q-Learning"
    paper: ClassVar[str] = "arXiv 2110.06169"
    mode: ClassVar[Mode] = "offline"
    actions: ClassVar[ActionKind] = "both"
    mask_fields: ClassVar[tuple[str, ...]] = ("legal_actions",)
    supports_n_step: ClassVar[bool] = True
    summary: ClassVar[str] = "Expectile values and advantage-weighted imitation of the data."
    config_class: ClassVar[type[AlgorithmConfig]] = IQLConfig
    scheduled: ClassVar[tuple[str, ...]] = ("actor",)  # the paper schedules only the actor
    config: IQLConfig
    model: IQLModel

    def __init__(self, spec: EnvSpec, config: IQLConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        self.add_optimizer("actor", self.model.actor.flat)
        self.add_optimizer("critic", self.model.critic.flat)
        self.add_optimizer("value", self.model.value.flat)

    def build_model(self, generator: torch.Generator) -> IQLModel:
        """Build the networks; override this to use others."""
        spec, config = self.spec, self.config
        sizes: Any = {"obs_dim": spec.obs_dim, "num_critics": config.num_critics}
        shared: Any = {"trunks": config.trunks(spec), "generator": generator}
        if spec.discrete:
            return DiscreteIQLModel(num_actions=spec.action_dim, **sizes, **shared)
        bounds = config.log_std_bounds
        return MLPIQLModel(action_dim=spec.action_dim, log_std_bounds=bounds, **sizes, **shared)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: every action comes from the dataset."""
        return {}

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the stages of value, actor and critics."""
        model, config = self.model, self.config
        terms = iql_terms(
            model,
            batch,
            gamma=config.gamma,
            expectile=config.expectile,
            beta=config.beta,
            weight_clip=config.weight_clip,
        )
        networks = {"value": model.value, "actor": model.actor, "critic": model.critic}
        for (key, network), network_terms in zip(networks.items(), terms, strict=True):
            yield Stage(network_terms, {key: network.flat})

    def move_targets(self, due: Due) -> None:
        """Update the target critics by Polyak averaging."""
        polyak_update(self.model.target, self.model.critic.flat, self.config.tau)
