"""Networks: flat parameters, stacked ensembles, policies."""

from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.actors import ActionSample, DeterministicActor, SquashedGaussianActor
from rl_training.models.critics import EnsembleCritic
from rl_training.models.mlp import MLP, FlatModule
from rl_training.models.mlp_redq import MLPREDQModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.q_network import QNetwork

__all__ = [
    "MLP",
    "ActionSample",
    "ActorCriticModel",
    "DeterministicActor",
    "EnsembleCritic",
    "FlatModule",
    "MLPREDQModel",
    "MLPSACModel",
    "MLPTD3Model",
    "QNetwork",
    "SquashedGaussianActor",
]
