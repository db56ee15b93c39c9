"""Behavior cloning: supervised learning of the recorded actions (docs/algorithms/bc.md).

The only stage of an update trains the actor. Rewards and next observations are not used. For
discrete actions the policy is categorical, and its likelihood is the usual cross-entropy; the
numbers of a MultiDiscrete action are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from rl_training.algorithms.action_masks import legal_actions
from rl_training.algorithms.base import Due, Stage, StagedAlgorithm, Terms, action_noise
from rl_training.algorithms.config import AlgorithmConfig, NetworkedConfig
from rl_training.config_model import Trait
from rl_training.models import CategoricalActor, DeterministicActor, SquashedGaussianActor
from rl_training.models.categorical import MultiCategoricalActor
from rl_training.types import ActionKind, Batch, EnvSpec, Metrics, Mode, Noise, NoiseSpec

Imitator = DeterministicActor | SquashedGaussianActor | CategoricalActor | MultiCategoricalActor


class BCConfig(NetworkedConfig):
    """Hyperparameters of BC (docs/algorithms/bc.md)."""

    network_names: ClassVar[tuple[str, ...]] = ("actor",)

    loss: Annotated[Literal["mse", "likelihood"], Trait.CONTINUOUS] = "mse"
    """Squared error of a deterministic action (`mse`), or likelihood of a Gaussian policy.

    Discrete actions always use the likelihood, of a categorical policy."""


# --- Losses: pure functions of tensors ----------------------------------------


def squared_error(predicted: Tensor, actions: Tensor) -> Tensor:
    """Return the mean of (μ(s) − a)² over rows and action dimensions; both are ``[B, A]``."""
    return (predicted - actions).square().mean((-2, -1))


def negative_log_likelihood(log_prob: Tensor) -> Tensor:
    """Return −mean log π(a|s); ``log_prob`` is ``[B]``."""
    return -log_prob.mean(-1)


def dataset_log_prob(
    model: SquashedGaussianActor | CategoricalActor | MultiCategoricalActor, batch: Batch
) -> Tensor:
    """Return log π(a|s) at the dataset's actions, ``[B]``."""
    if isinstance(model, CategoricalActor):
        return model.log_prob(batch.obs, batch.actions, legal_actions(batch))
    return model.log_prob(batch.obs, batch.actions)


def bc_loss(model: Imitator, batch: Batch) -> Metrics:
    """Compute BC's loss at the model's current parameters: the likelihood of a distribution."""
    if isinstance(model, DeterministicActor):
        return {"loss/actor": squared_error(model.mode(batch.obs), batch.actions)}
    return {"loss/actor": negative_log_likelihood(dataset_log_prob(model, batch))}


# --- Learner ------------------------------------------------------------------


class BCAlgorithm(StagedAlgorithm):
    """Behavior cloning."""

    name: ClassVar[str] = "bc"
    title: ClassVar[str] = "Behavior Cloning"
    paper: ClassVar[str] = "Pomerleau, 1988"
    mode: ClassVar[Mode] = "offline"
    actions: ClassVar[ActionKind] = "both"
    supports_multi_discrete: ClassVar[bool] = True
    mask_fields: ClassVar[tuple[str, ...]] = ("legal_actions",)
    summary: ClassVar[str] = "Supervised learning of the recorded actions."
    learns_from_rewards: ClassVar[bool] = False
    config_class: ClassVar[type[AlgorithmConfig]] = BCConfig
    config: BCConfig

    def __init__(self, spec: EnvSpec, config: BCConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = self.build_model(generator)
        self.add_optimizer("actor", self.model.flat)

    def build_model(self, generator: torch.Generator) -> Imitator:
        """Build the actor; override this to use another one."""
        spec, config = self.spec, self.config
        trunk = config.trunks(spec)["actor"]
        if spec.action_choices:
            return MultiCategoricalActor(
                spec.obs_dim,
                spec.action_choices,
                config.hidden_sizes,
                trunk=trunk,
                generator=generator,
            )
        kind: type[DeterministicActor | SquashedGaussianActor | CategoricalActor]
        kind = DeterministicActor if config.loss == "mse" else SquashedGaussianActor
        if spec.discrete:
            kind = CategoricalActor
        sizes = spec.obs_dim, spec.action_dim, config.hidden_sizes
        return kind(*sizes, trunk=trunk, generator=generator)

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        """Return the policy's mode, or a sample if the policy is a distribution."""
        assert deterministic or noise is not None, "a sample needs the noise of act_noise"
        sample = None if noise is None or deterministic else noise["action"]
        if isinstance(self.model, CategoricalActor):
            return self.model.choose(obs, sample, legal)
        if sample is None or isinstance(self.model, DeterministicActor):
            return self.model.mode(obs)
        return self.model.explore(obs, sample)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare the noise of a sampled action."""
        return {"action": action_noise(self.spec, batch_size)}

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: the loss uses recorded actions."""
        return {}

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the actor's stage."""
        losses = bc_loss(self.model, batch)
        yield Stage(Terms(losses["loss/actor"], losses), {"actor": self.model.flat})
