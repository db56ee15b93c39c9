"""Categorical policies, shared by SAC and AWAC with discrete actions."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.config import ActorCriticConfig
from rl_training.models import CategoricalActorCritic
from rl_training.types import EnvSpec


def categorical_model(
    spec: EnvSpec, config: ActorCriticConfig, generator: torch.Generator
) -> CategoricalActorCritic:
    """Build the networks of a config for discrete actions."""
    sizes, trunks = (spec.obs_dim, spec.action_dim), config.trunks(spec)
    critics = config.num_critics
    return CategoricalActorCritic(*sizes, num_critics=critics, trunks=trunks, generator=generator)


def expectation(log_probs: Tensor, values: Tensor) -> Tensor:
    """Return Σ_a π(a|s) x(s, a), ``[B]``; both are ``[B, A]``."""
    return (log_probs.exp() * values).sum(-1)
