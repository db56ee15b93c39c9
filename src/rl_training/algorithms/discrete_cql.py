"""Conservative Q-Learning for discrete actions (arXiv 2006.04779, section 3.2 and appendix F).

Double Q-learning whose critics are pushed down on every action and up on the recorded one. There is
no actor: the policy is greedy. The only stage of an update trains the critics, and the multiplier
if it is learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.action_masks import (
    legal_actions,
    legal_only,
    next_legal_actions,
)
from rl_training.algorithms.base import (
    Due,
    Stage,
    Terms,
    bootstrap_discount,
    importance_weights,
    polyak_update,
    td_errors,
    td_target,
    value_metrics,
)
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.cql import CQLConfig, Penalty, conservative_gaps, penalized_terms
from rl_training.algorithms.dqn import huber_loss
from rl_training.algorithms.epsilon_greedy import GreedyLearner
from rl_training.models import DiscreteQModel
from rl_training.models.categorical import at_index
from rl_training.types import Batch, EnvSpec, Metrics, Mode, Noise

# --- Losses: pure functions of tensors ----------------------------------------


def best_actions(model: DiscreteQModel, obs: Tensor, legal: Tensor | None) -> Tensor:
    """Return the legal action with the highest mean over the critics, ``[B, 1]``."""
    values = model.critic.all_q_values(obs).mean(-3)  # [B, A]
    return legal_only(values, legal).argmax(-1, keepdim=True)


@torch.no_grad()
def double_q_target(model: DiscreteQModel, batch: Batch, *, gamma: float) -> Tensor:
    """Return y = r + γ (1 − d) min_i Q̄_i(s', argmax_a mean_j Q_j(s', a)); ``[B]``."""
    actions = best_actions(model, batch.next_obs, next_legal_actions(batch))
    next_q = model.critic.q_values(batch.next_obs, actions, model.target)  # [N, B]
    discount = bootstrap_discount(batch, gamma)
    return td_target(batch.rewards, batch.terminations, next_q.amin(-2), gamma=discount)


def all_action_gaps(values: Tensor, q: Tensor, *, temperature: float) -> Tensor:
    """Return the mean of T log Σ_a' exp(Q_i(s, a') / T) − Q_i(s, a), eq. 4, as ``[N]``.

    ``values`` ``[N, B, A]`` are those of all actions, and ``q`` ``[N, B]`` of the recorded ones.
    """
    every = values.transpose(-2, -1)  # [N, A, B]
    density = torch.zeros_like(every[0])  # each action is summed once
    return conservative_gaps(q, every, density, temperature=temperature)


def critic_terms(model: DiscreteQModel, batch: Batch, penalty: Penalty, *, gamma: float) -> Terms:
    """Compute the losses of the critics and of a learned multiplier.

    Σ_i mean huber(Q_i(s, a) − y) + w gap_i; the threshold is that of continuous actions.
    """
    target = double_q_target(model, batch, gamma=gamma)
    values = model.critic.all_q_values(batch.obs)  # [N, B, A]
    q = at_index(values, batch.actions)  # [N, B]
    legal = legal_only(values, legal_actions(batch))
    gaps = all_action_gaps(legal, q, temperature=penalty.temperature)
    same = target.unsqueeze(-2).expand_as(q)
    bellman = huber_loss(q, same, importance_weights(batch)).sum(-1)
    loss, metrics = penalized_terms(bellman, gaps, penalty)
    return Terms(loss, value_metrics(q, target) | metrics | td_errors(q, target, batch))


def discrete_cql_loss(
    model: DiscreteQModel,
    batch: Batch,
    *,
    conservative_weight: float = 5.0,
    conservative_temperature: float = 1.0,
    lagrange_threshold: float | None = None,
    log_multiplier: Tensor | None = None,
    gamma: float = 0.99,
) -> Metrics:
    """Compute the losses at the model's current parameters, from the same terms as `update`."""
    options = conservative_weight, conservative_temperature, lagrange_threshold
    return critic_terms(model, batch, Penalty(*options, log_multiplier), gamma=gamma).losses


# --- Learner ------------------------------------------------------------------


class DiscreteCQLAlgorithm(GreedyLearner):
    """Conservative Q-Learning for discrete actions."""

    name: ClassVar[str] = "cql"
    mode: ClassVar[Mode] = "offline"
    supports_n_step: ClassVar[bool] = True
    mask_fields: ClassVar[tuple[str, ...]] = ("legal_actions", "next_legal_actions")
    config_class: ClassVar[type[AlgorithmConfig]] = CQLConfig
    loss_parts: ClassVar[frozenset[str]] = frozenset({"loss/bellman"})
    config: CQLConfig

    def __init__(self, spec: EnvSpec, config: CQLConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.model = DiscreteQModel(
            spec.obs_dim,
            spec.action_dim,
            num_critics=config.num_critics,
            trunks=config.trunks(spec),
            generator=generator,
        )
        self.add_optimizer("critic", self.model.critic.flat)
        learned = config.lagrange_threshold is not None
        self.log_multiplier = nn.Parameter(torch.zeros(())) if learned else None
        if self.log_multiplier is not None:
            self.add_optimizer("multiplier", self.log_multiplier)

    def greedy_actions(self, obs: Tensor, legal: Tensor | None) -> Tensor:
        """Return the legal action with the highest mean Q-value, ``[B]``."""
        return best_actions(self.model, obs, legal).squeeze(-1)

    @property
    def random_share(self) -> float:
        """Probability ε of a random action."""
        return self.config.epsilon

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the stage of the critics."""
        config = self.config
        penalty = config.penalty(self.log_multiplier)
        terms = critic_terms(self.model, batch, penalty, gamma=config.gamma)
        learned = {} if self.log_multiplier is None else {"multiplier": self.log_multiplier}
        yield Stage(terms, {"critic": self.model.critic.flat, **learned})

    def move_targets(self, due: Due) -> None:
        """Update the target critics by Polyak averaging."""
        polyak_update(self.model.target, self.model.critic.flat, self.config.tau)
