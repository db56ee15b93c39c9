"""Deep Q-Network (Nature 518, 529, 2015; arXiv 1312.5602) and Double DQN (arXiv 1509.06461).

The stages of an update, in the order of the paper's Algorithm 1: the Q-network, then the target
network at the end of its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from rl_training.algorithms.base import (
    Due,
    Stage,
    StagedAlgorithm,
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
    Widths,
)
from rl_training.errors import ConfigError
from rl_training.models import QNetwork
from rl_training.text import counted
from rl_training.types import (
    ActionKind,
    Batch,
    EnvSpec,
    Metrics,
    Mode,
    Noise,
    NoiseField,
    NoiseSpec,
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


# --- Losses: pure functions of tensors ----------------------------------------


def next_values(target_q: Tensor, choosing_q: Tensor) -> Tensor:
    """Return Q̄(s', argmax_a Q(s', a)) ``[B]``, arXiv 1509.06461 eq. 4; inputs are ``[B, A]``.

    ``choosing_q`` comes from the online network for Double DQN, and from the target network for
    DQN, which gives the maximum.
    """
    return target_q.gather(-1, choosing_q.argmax(-1, keepdim=True)).squeeze(-1)


def huber_loss(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean of ½ δ² where |δ| ≤ 1, else |δ| − ½, with δ = Q(s, a) − y.

    Its derivative is δ clipped to [−1, 1], the paper's clipped error. ``weights`` multiply the
    rows. All arguments are ``[B]``.
    """
    return weighted(functional.huber_loss(q, target, reduction="none"), weights).mean(-1)


@torch.no_grad()
def dqn_target(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Tensor:
    """Return the Q-network's regression target; ``[B]``."""
    target_q = model.target_q_values(batch.next_obs)  # [B, A]
    choosing_q = model.q_values(batch.next_obs) if double else target_q
    values = next_values(target_q, choosing_q)
    discount = bootstrap_discount(batch, gamma)
    return td_target(batch.rewards, batch.terminations, values, gamma=discount)


def q_terms(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Terms:
    """Compute the loss of the Q-network at the recorded actions."""
    target = dqn_target(model, batch, gamma=gamma, double=double)
    q = model.q_values(batch.obs).gather(-1, batch.actions.long()).squeeze(-1)  # [B]
    loss = huber_loss(q, target, importance_weights(batch))
    means = {"q/mean": q.detach().mean(-1), "q/target": target.mean(-1)}
    return Terms(loss, {"loss/q": loss} | means | td_errors(q.unsqueeze(-2), target, batch))


def dqn_loss(
    model: QNetwork, batch: Batch, *, gamma: float = 0.99, double: bool = False
) -> Metrics:
    """Compute DQN's loss at the model's current parameters, from the same terms as `update`."""
    return q_terms(model, batch, gamma=gamma, double=double).losses


# --- Learner ------------------------------------------------------------------


class DQNAlgorithm(StagedAlgorithm):
    """Deep Q-Network."""

    name: ClassVar[str] = "dqn"
    title: ClassVar[str] = "Deep Q-Network"
    paper: ClassVar[str] = "arXiv 1312.5602"
    mode: ClassVar[Mode] = "online"
    actions: ClassVar[ActionKind] = "discrete"
    supports_n_step: ClassVar[bool] = True
    summary: ClassVar[str] = "Q-learning with a target network; Double DQN as an option."
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
        sizes = self.spec.obs_dim, self.spec.action_dim, self.config.hidden_sizes
        return QNetwork(*sizes, trunk=self.config.trunks()["q"], generator=generator)

    @classmethod
    def check_spec(cls, spec: EnvSpec) -> None:
        """Raise an error for continuous actions."""
        if not spec.discrete:
            raise ConfigError(
                f"{cls.name} needs a Discrete action space, but the action space is a Box of "
                f"{counted(spec.action_dim, 'value')}. Choose an algorithm for continuous actions, "
                "such as sac."
            )

    def explore_at(self, step: int) -> None:
        """Set ε for the next action; it decays with environment steps, not with updates."""
        config = self.config
        progress = min(1.0, step / config.epsilon_decay_steps)
        self.epsilon.fill_(
            config.epsilon_start + (config.epsilon_end - config.epsilon_start) * progress
        )

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare two numbers per action: whether it is random, and the random action."""
        return {"explore": NoiseField("uniform", (batch_size, 2))}

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Noise | None) -> Tensor:
        """Return the greedy action, or a random one with probability ε; ``[B, 1]``."""
        greedy = self.model.q_values(obs).argmax(-1)  # [B]
        if deterministic:
            return greedy.to(obs.dtype).unsqueeze(-1)
        assert noise is not None, "exploration needs the noise that act_noise declares"
        coin, uniform = noise["explore"].unbind(-1)  # [B] each, below 1
        random = (uniform * self.spec.action_dim).floor()
        return torch.where(coin < self.epsilon, random, greedy).unsqueeze(-1)

    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare no noise: an update depends only on its batch."""
        return {}

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
