"""Deep Q-Network (Nature 518, 529, 2015; arXiv 1312.5602), Double DQN (arXiv 1509.06461) an option.

Stages of an update, in the order of the paper's Algorithm 1: Q-network, then the target network
where its interval ends.
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
    """DQN's hyper-parameters (docs/algorithms/dqn.md)."""

    network_names: ClassVar[tuple[str, ...]] = ("q",)
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {"q": {"layer_norm": "layer_norm"}}

    batch_size: BatchSize = 128
    """Transitions in one gradient update."""
    learning_rate: LearningRate = 2.5e-4
    """Adam's step size."""
    hidden_sizes: Widths = (120, 84)
    """Widths of the hidden layers."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """Rate τ of each update of the target network; 1 copies."""
    buffer_capacity: Capacity = 10_000
    """Transitions that the replay keeps; the oldest are dropped."""
    learning_starts: int = Field(default=1_000, ge=0)
    """Environment steps of uniform random actions before the first update."""
    train_frequency: int = Field(default=10, gt=0)
    """Collected transitions between rounds of updates."""
    double: bool = False
    """Let the online network choose the target's action (Double DQN)."""
    layer_norm: bool = False
    """Normalize the hidden layers before each ReLU."""
    target_update_interval: int = Field(default=50, gt=0)
    """Gradient updates between updates of the target network; 1 for soft ones, by a small `tau`."""
    max_grad_norm: float | None = Field(default=10.0, gt=0)
    """Greatest Euclidean length of the gradient, which is shortened to it; null for no limit."""
    epsilon_start: float = Field(default=1.0, ge=0, le=1)
    """Probability ε of a random action at step 0."""
    epsilon_end: float = Field(default=0.05, ge=0, le=1)
    """Probability ε from step `epsilon_decay_steps` on."""
    epsilon_decay_steps: int = Field(default=25_000, gt=0)
    """Environment steps over which ε decays linearly."""


# --- Losses: pure functions of tensors ----------------------------------------


def next_values(target_q: Tensor, choosing_q: Tensor) -> Tensor:
    """Q̄(s', argmax_a Q(s', a)), arXiv 1509.06461 eq. 4; both are ``[B, A]``, the result ``[B]``.

    ``choosing_q`` is the online network's for Double DQN; the target network's own gives the
    maximum of DQN.
    """
    return target_q.gather(-1, choosing_q.argmax(-1, keepdim=True)).squeeze(-1)


def huber_loss(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the batch of ½ δ² where |δ| ≤ 1 and |δ| − ½ beyond, δ = Q(s, a) − y; ``[B]`` each.

    Its slope is δ clipped to [−1, 1]: the paper's clipped error. Each row counts by its weight.
    """
    return weighted(functional.huber_loss(q, target, reduction="none"), weights).mean(-1)


@torch.no_grad()
def dqn_target(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Tensor:
    """The Q-network's target from the target network; ``[B]``."""
    target_q = model.target_q_values(batch.next_obs)  # [B, A]
    choosing_q = model.q_values(batch.next_obs) if double else target_q
    values = next_values(target_q, choosing_q)
    discount = bootstrap_discount(batch, gamma)
    return td_target(batch.rewards, batch.terminations, values, gamma=discount)


def q_terms(model: QNetwork, batch: Batch, *, gamma: float, double: bool) -> Terms:
    """The loss of the Q-network at the actions that were taken."""
    target = dqn_target(model, batch, gamma=gamma, double=double)
    q = model.q_values(batch.obs).gather(-1, batch.actions.long()).squeeze(-1)  # [B]
    loss = huber_loss(q, target, importance_weights(batch))
    figures = {"q/mean": q.detach().mean(-1), "q/target": target.mean(-1)}
    return Terms(loss, {"loss/q": loss} | figures | td_errors(q.unsqueeze(-2), target, batch))


def dqn_loss(
    model: QNetwork, batch: Batch, *, gamma: float = 0.99, double: bool = False
) -> Metrics:
    """DQN's loss at the model's present parameters, by the terms that `update` uses."""
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
        """The Q-network; a variant with another one overrides this."""
        sizes = self.spec.obs_dim, self.spec.action_dim, self.config.hidden_sizes
        return QNetwork(*sizes, trunk=self.config.trunks()["q"], generator=generator)

    @classmethod
    def check_spec(cls, spec: EnvSpec) -> None:
        """Refuse continuous actions."""
        if not spec.discrete:
            raise ConfigError(
                f"{cls.name} needs a Discrete action space, but this one is a Box of "
                f"{spec.action_dim} values: choose an algorithm for continuous actions."
            )

    def explore_at(self, step: int) -> None:
        """Set ε for the next action; it falls by environment steps, not by updates."""
        config = self.config
        progress = min(1.0, step / config.epsilon_decay_steps)
        self.epsilon.fill_(
            config.epsilon_start + (config.epsilon_end - config.epsilon_start) * progress
        )

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """For each action a coin, which decides whether it is random, and the random action."""
        return {"explore": NoiseField("uniform", (batch_size, 2))}

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Noise | None) -> Tensor:
        """The action of the greatest Q, the first of equals; with chance ε any one; ``[B, 1]``."""
        greedy = self.model.q_values(obs).argmax(-1)  # [B]
        if deterministic:
            return greedy.to(obs.dtype).unsqueeze(-1)
        assert noise is not None, "an exploring act needs the noise that act_noise declares"
        coin, uniform = noise["explore"].unbind(-1)  # [B] each, below 1
        random = (uniform * self.spec.action_dim).floor()
        return torch.where(coin < self.epsilon, random, greedy).unsqueeze(-1)

    def noise(self, batch_size: int) -> NoiseSpec:
        """An update takes none."""
        return {}

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """The Q-network."""
        config, model = self.config, self.model
        loss, metrics = q_terms(model, batch, gamma=config.gamma, double=config.double)
        terms = Terms(loss, metrics | {"policy/epsilon": self.epsilon})
        yield Stage(terms, {"q": model.flat}, config.max_grad_norm)

    def move_targets(self, due: Due) -> None:
        """The target network follows at the end of its interval."""
        if "target" in due:
            polyak_update(self.model.target, self.model.flat, self.config.tau)
