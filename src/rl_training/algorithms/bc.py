"""Behavior cloning: supervised learning of the recorded actions (docs/algorithms/bc.md).

The only stage of an update trains the actor. Rewards and next observations are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rl_training.algorithms.base import Due, Stage, StagedAlgorithm, Terms
from rl_training.algorithms.config import AlgorithmConfig, NetworkedConfig
from rl_training.models import DeterministicActor, SquashedGaussianActor
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise, NoiseField, NoiseSpec

Imitator = DeterministicActor | SquashedGaussianActor


class BCConfig(NetworkedConfig):
    """Hyperparameters of BC (docs/algorithms/bc.md)."""

    network_names: ClassVar[tuple[str, ...]] = ("actor",)

    loss: Literal["mse", "likelihood"] = "mse"
    """Squared error of a deterministic action (`mse`), or likelihood of a Gaussian policy."""


# --- Losses: pure functions of tensors ----------------------------------------


def squared_error(predicted: Tensor, actions: Tensor) -> Tensor:
    """Return the mean of (μ(s) − a)² over rows and action dimensions; both are ``[B, A]``."""
    return (predicted - actions).square().mean((-2, -1))


def negative_log_likelihood(log_prob: Tensor) -> Tensor:
    """Return −mean log π(a|s); ``log_prob`` is ``[B]``."""
    return -log_prob.mean(-1)


def bc_loss(model: Imitator, batch: Batch) -> Metrics:
    """Compute BC's loss at the model's current parameters; a Gaussian model uses the likelihood."""
    if isinstance(model, SquashedGaussianActor):
        return {"loss/actor": negative_log_likelihood(model.log_prob(batch.obs, batch.actions))}
    return {"loss/actor": squared_error(model.mode(batch.obs), batch.actions)}


# --- Learner ------------------------------------------------------------------


class BCAlgorithm(StagedAlgorithm):
    """Behavior cloning."""

    name: ClassVar[str] = "bc"
    title: ClassVar[str] = "Behavior Cloning"
    paper: ClassVar[str] = "Pomerleau, 1988"
    mode: ClassVar[Mode] = "offline"
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
        config = self.config
        kind = DeterministicActor if config.loss == "mse" else SquashedGaussianActor
        sizes = self.spec.obs_dim, self.spec.action_dim, config.hidden_sizes
        return kind(*sizes, trunk=config.trunks()["actor"], generator=generator)

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Noise | None) -> Tensor:
        """Return the policy's mode, or a sample if the policy is a distribution."""
        if deterministic or isinstance(self.model, DeterministicActor):
            return self.model.mode(obs)
        assert noise is not None, "a sample needs the noise that act_noise declares"
        return self.model.explore(obs, noise["action"])

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare standard-normal noise for a sampled action."""
        return {"action": NoiseField("normal", (batch_size, self.spec.action_dim))}

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: the loss uses recorded actions."""
        return {}

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the actor's stage."""
        losses = bc_loss(self.model, batch)
        yield Stage(Terms(losses["loss/actor"], losses), {"actor": self.model.flat})
