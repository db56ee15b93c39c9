"""Networks: flat parameters, stacked ensembles, policies."""

from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.actors import (
    ActionSample,
    DeterministicActor,
    GaussianActor,
    SquashedGaussianActor,
)
from rl_training.models.critics import EnsembleCritic
from rl_training.models.mlp import MLP, FlatModule
from rl_training.models.mlp_iql import MLPIQLModel
from rl_training.models.mlp_redq import GaussianActorCritic, MLPREDQModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.q_network import QNetwork
from rl_training.models.tanh_mean import TanhMeanGaussianActor
from rl_training.models.value_network import ValueNetwork

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
    "ValueNetwork",
]
