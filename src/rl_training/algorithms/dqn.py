"""Deep Q-Network (Nature 518, 529, 2015; arXiv 1312.5602) and its usual extensions.

These are Double DQN (arXiv 1509.06461), dueling networks (arXiv 1511.06581) and QR-DQN (arXiv
1710.10044). The stages of an update, in the order of the paper's Algorithm 1: the Q-network, then
the target network at the end of its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from rl_training.algorithms.action_masks import legal_only, next_legal_actions
from rl_training.algorithms.base import (
    Due,
    Stage,
    Terms,
    bootstrap_discount,
    importance_weights,
    polyak_update,
    td_errors,
    td_target,
    weighted,
)
from rl_training.algorithms.config import (
    AlgorithmConfig,
    BatchSize,
    Capacity,
    LearningRate,
    NetworkedConfig,
    OffPolicyConfig,
    Width,
    Widths,
)
from rl_training.algorithms.epsilon_greedy import GreedyLearner
from rl_training.algorithms.quantiles import quantile_loss
from rl_training.models import QNetwork
from rl_training.types import (
    Batch,
    EnvSpec,
    Metrics,
    Mode,
    Noise,
)


class DQNConfig(NetworkedConfig, OffPolicyConfig):
    """Hyperparameters of DQN (docs/algorithms/dqn.md)."""

    network_names: ClassVar[tuple[str, ...]] = ("q",)
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {"q": {"layer_norm": "layer_norm"}}

    batch_size: BatchSize = 128
    """Number of transitions in each gradient update."""
    learning_rate: LearningRate = 2.5e-4
    """Learning rate of Adam; a schedule scales it."""
    hidden_sizes: Widths = (120, 84)
    """Widths of the hidden layers."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """Polyak rate τ of each target update; 1 copies the network."""
    buffer_capacity: Capacity = 10_000
    """Capacity of the replay buffer in transitions; the oldest are overwritten."""
    learning_starts: int = Field(default=1_000, ge=0)
    """Environment steps with uniform random actions before the first update."""
    train_frequency: int = Field(default=10, gt=0)
    """Transitions to collect between rounds of updates."""
    double: bool = False
    """Choose the target's action with the online network (Double DQN)."""
    dueling: bool = False
    """Estimate the value of a state and the advantages of its actions in separate streams."""
    num_quantiles: Width = 1
    """Quantiles of each action's return, as in QR-DQN; 1 learns the expected return only."""
    layer_norm: bool = False
    """Apply LayerNorm to every hidden layer, before its activation."""
    target_update_interval: int = Field(default=50, gt=0)
    """Gradient updates between target updates; use 1 with a small `tau` for soft updates."""
    max_grad_norm: float | None = Field(default=10.0, gt=0)
    """Clip the gradient to this Euclidean norm; null disables clipping."""
    epsilon_start: float = Field(default=1.0, ge=0, le=1)
    """Initial probability ε of a random action."""
    epsilon_end: float = Field(default=0.05, ge=0, le=1)
    """Final probability ε of a random action, from step `epsilon_decay_steps` on."""
    epsilon_decay_steps: int = Field(default=25_000, gt=0)
    """Environment steps over which ε decays linearly."""

    def _uses(self, key: str) -> bool:
        """The hidden layers of dueling streams are as wide as the last of `hidden_sizes`."""
        return key == "hidden_sizes" and self.dueling


# --- Losses: pure functions of tensors ----------------------------------------


def at_actions(values: Tensor, actions: Tensor) -> Tensor:
    """Return the values ``[B, M]`` of the actions ``[B, 1]``, out of all values ``[B, A, M]``."""
    index = actions.long().unsqueeze(-1).expand(*actions.shape, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)


def next_values(target: Tensor, choosing_q: Tensor) -> Tensor:
    """Return Z̄(s', argmax_a Q(s', a)) ``[B, M]``, arXiv 1509.06461 eq. 4.

    ``target`` are the target network's values ``[B, A, M]``. ``choosing_q`` ``[B, A]`` comes from
    the online network for Double DQN, and from the target network for DQN, which gives the maximum.
    """
    return at_actions(target, choosing_q.argmax(-1, keepdim=True))


def huber_loss(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean of ½ δ² where |δ| ≤ 1, else |δ| − ½, with δ = Q(s, a) − y.

    Its derivative is δ clipped to [−1, 1], the paper's clipped error. ``weights`` multiply the
    rows. All arguments are ``[B]``.
    """
    return weighted(functional.huber_loss(q, target, reduction="none"), weights).mean(-1)


def return_loss(values: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the loss of M predicted values, ``[B, M]`` like the target.

    A single value is the expected return, with the Huber loss. Several are quantiles, with the
    quantile Huber loss (arXiv 1710.10044 eq. 10, divided by M).
    """
    if values.shape[-1] == 1:
        return huber_loss(values.squeeze(-1), target.squeeze(-1), weights)
    return quantile_loss(values.unsqueeze(-3), target, weights)


@torch.no_grad()
def dqn_target(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Tensor:
    """Return the Q-network's regression target, ``[B, M]`` for M quantiles."""
    target = model.quantiles(batch.next_obs, model.target)  # [B, A, M]
    choosing_q = model.q_values(batch.next_obs) if double else target.mean(-1)  # [B, A]
    choosing_q = legal_only(choosing_q, next_legal_actions(batch))
    values = next_values(target, choosing_q)
    rewards, terminations = batch.rewards.unsqueeze(-1), batch.terminations.unsqueeze(-1)
    return td_target(rewards, terminations, values, gamma=bootstrap_discount(batch, gamma))


def q_terms(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Terms:
    """Compute the loss of the Q-network at the recorded actions."""
    target = dqn_target(model, batch, gamma=gamma, double=double)
    values = at_actions(model.quantiles(batch.obs), batch.actions)  # [B, M]
    loss = return_loss(values, target, importance_weights(batch))
    q, mean_target = values.detach().mean(-1), target.mean(-1)  # [B]
    means = {"q/mean": q.mean(-1), "q/target": mean_target.mean(-1)}
    return Terms(loss, {"loss/q": loss} | means | td_errors(q.unsqueeze(-2), mean_target, batch))


def dqn_loss(
    model: QNetwork, batch: Batch, *, gamma: float = 0.99, double: bool = False
) -> Metrics:
    """Compute DQN's loss at the model's current parameters, from the same terms as `update`."""
    return q_terms(model, batch, gamma=gamma, double=double).losses


# --- Learner ------------------------------------------------------------------


class DQNAlgorithm(GreedyLearner):
    """Deep Q-Network."""

    name: ClassVar[str] = "dqn"
    title: ClassVar[str] = "Deep Q-Network"
    paper: ClassVar[str] = "arXiv 1312.5602"
    mode: ClassVar[Mode] = "online"
    supports_n_step: ClassVar[bool] = True
    mask_fields: ClassVar[tuple[str, ...]] = ("next_legal_actions",)
    summary: ClassVar[str] = (
        "Q-learning with a target network; Double DQN, dueling streams and quantiles as options."
    )
    config_class: ClassVar[type[AlgorithmConfig]] = DQNConfig
    config: DQNConfig
    epsilon: Tensor

    def __init__(self, spec: EnvSpec, config: DQNConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.intervals = {"target": config.target_update_interval}
        self.model = self.build_model(generator)
        self.register_buffer("epsilon", torch.tensor(config.epsilon_start))
        self.add_optimizer("q", self.model.flat)

    def build_model(self, generator: torch.Generator) -> QNetwork:
        """Build the Q-network; override this to use another one."""
        config = self.config
        return QNetwork(
            self.spec.obs_dim,
            self.spec.action_dim,
            config.hidden_sizes,
            num_quantiles=config.num_quantiles,
            dueling=config.dueling,
            trunk=config.trunks(self.spec)["q"],
            generator=generator,
        )

    def explore_at(self, step: int) -> None:
        """Set ε for the next action; it decays with environment steps, not with updates."""
        config = self.config
        progress = min(1.0, step / config.epsilon_decay_steps)
        self.epsilon.fill_(
            config.epsilon_start + (config.epsilon_end - config.epsilon_start) * progress
        )

    def greedy_actions(self, obs: Tensor, legal: Tensor | None) -> Tensor:
        """Return the legal action with the highest Q-value, ``[B]``."""
        return legal_only(self.model.q_values(obs), legal).argmax(-1)

    @property
    def random_share(self) -> Tensor:
        """Probability ε of a random action."""
        return self.epsilon

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the Q-network's stage."""
        config, model = self.config, self.model
        loss, metrics = q_terms(model, batch, gamma=config.gamma, double=config.double)
        terms = Terms(loss, metrics | {"policy/epsilon": self.epsilon})
        yield Stage(terms, {"q": model.flat}, config.max_grad_norm)

    def move_targets(self, due: Due) -> None:
        """Update the target network at the end of its interval."""
        if "target" in due:
            polyak_update(self.model.target, self.model.flat, self.config.tau)
