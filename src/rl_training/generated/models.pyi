"""The exports of `rl_training.models`. Written by `make generate`. Do not edit."""

from rl_training.models.actor_critic import ActorCriticModel as ActorCriticModel
from rl_training.models.actor_critic import BinnedActorCritic as BinnedActorCritic
from rl_training.models.actor_critic import GaussianActorCritic as GaussianActorCritic
from rl_training.models.actor_critic import MLPIQLModel as MLPIQLModel
from rl_training.models.actor_critic import MLPREDQModel as MLPREDQModel
from rl_training.models.actor_critic import MLPSACModel as MLPSACModel
from rl_training.models.actor_critic import MLPTD3Model as MLPTD3Model
from rl_training.models.actors import ActionSample as ActionSample
from rl_training.models.actors import DeterministicActor as DeterministicActor
from rl_training.models.actors import GaussianActor as GaussianActor
from rl_training.models.actors import SquashedGaussianActor as SquashedGaussianActor
from rl_training.models.actors import TanhMeanGaussianActor as TanhMeanGaussianActor
from rl_training.models.categorical import CategoricalActor as CategoricalActor
from rl_training.models.categorical import CategoricalActorCritic as CategoricalActorCritic
from rl_training.models.categorical import DiscreteCritic as DiscreteCritic
from rl_training.models.categorical import DiscreteIQLModel as DiscreteIQLModel
from rl_training.models.categorical import DiscreteQModel as DiscreteQModel
from rl_training.models.critics import BinnedCritic as BinnedCritic
from rl_training.models.critics import EnsembleCritic as EnsembleCritic
from rl_training.models.mlp import MLP as MLP
from rl_training.models.network import FlatModule as FlatModule
from rl_training.models.network import Network as Network
from rl_training.models.network import Trunk as Trunk
from rl_training.models.network_config import TrunkConfig as TrunkConfig
from rl_training.models.q_network import QNetwork as QNetwork
