"""Networks: flat parameters, stacked ensembles, policies."""

from rl_training.models.actor_critic import (
    ActorCriticModel,
    GaussianActorCritic,
    MLPIQLModel,
    MLPREDQModel,
    MLPSACModel,
    MLPTD3Model,
)
from rl_training.models.actors import (
    ActionSample,
    DeterministicActor,
    GaussianActor,
    SquashedGaussianActor,
    TanhMeanGaussianActor,
)
from rl_training.models.critics import EnsembleCritic
from rl_training.models.mlp import MLP, FlatModule
from rl_training.models.q_network import QNetwork

__all__ = [
    "MLP",
    "ActionSample",
    "ActorCriticModel",
    "DeterministicActor",
    "EnsembleCritic",
    "FlatModule",
    "GaussianActor",
    "GaussianActorCritic",
    "MLPIQLModel",
    "MLPREDQModel",
    "MLPSACModel",
    "MLPTD3Model",
    "QNetwork",
    "SquashedGaussianActor",
    "TanhMeanGaussianActor",
]
