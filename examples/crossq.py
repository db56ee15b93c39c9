"""CrossQ (arXiv 1902.05605): SAC with batch renormalization instead of target networks.

    python examples/crossq.py

On the command line, in the folder of this file:

    rl-training --import crossq train --config sac/pendulum algo=my_crossq
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field

from rl_training import Batch, MLPSACModel, SACAlgorithm, SACConfig, register_algorithm, train
from rl_training.algorithms import Stage, bootstrap_discount, td_target, td_terms
from rl_training.algorithms.config import LearningRate, Widths
from rl_training.types import Noise


class CrossQConfig(SACConfig):
    """The paper's settings."""

    network_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"all": {"trunk": "batch_norm"}}
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"hidden_sizes": "critic_hidden_sizes"}
    }
    learning_rate: LearningRate = 1e-3
    """Adam's step size, for every network."""
    critic_hidden_sizes: Widths = (2048, 2048)
    """Widths of the critics' hidden layers."""
    policy_delay: int = Field(default=3, gt=0)
    """Number of critic updates per update of the actor and the temperature."""


class CrossQ(SACAlgorithm):
    """SAC with batch renormalization instead of target networks."""

    name = "my_crossq"
    config_class = CrossQConfig
    config: CrossQConfig

    def __init__(self, spec: Any, config: CrossQConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"actor": config.policy_delay}

    def build_model(self, generator: torch.Generator) -> MLPSACModel:
        """Build the networks, without target critics."""
        return MLPSACModel(
            self.spec.obs_dim,
            self.spec.action_dim,
            num_critics=self.config.num_critics,
            trunks=self.config.trunks(self.spec),
            target=False,
            generator=generator,
        )

    def add_optimizer(self, key: str, parameter: torch.Tensor, **options: Any) -> None:
        """Use Adam with less momentum."""
        super().add_optimizer(key, parameter, betas=(0.5, 0.999), **options)

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Evaluate both states in one pass, so that they share the batch statistics."""
        with torch.no_grad():
            following = self.model.sample(batch.next_obs, noise["next_action"])
        obs = torch.cat((batch.obs, batch.next_obs))
        actions = torch.cat((batch.actions, following.actions))
        q, next_q = self.model.q_values(obs, actions).chunk(2, dim=-1)  # [N, B] each
        value = next_q.detach().amin(-2) - self.alpha * following.log_prob
        gamma = bootstrap_discount(batch, self.config.gamma)
        target = td_target(batch.rewards, batch.terminations, value, gamma=gamma)
        return Stage(td_terms(q, batch, target), {"critic": self.model.critic.flat})


register_algorithm(CrossQ)

if __name__ == "__main__":
    config = {"algo": "my_crossq", "env_id": "Pendulum-v1", "total_timesteps": 10_000}
    train(config | {"algo_kwargs": {"critic_hidden_sizes": [256, 256], "learning_starts": 1_000}})
