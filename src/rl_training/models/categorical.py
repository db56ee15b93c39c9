"""Networks for discrete actions: a categorical policy, and critics with a value per action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.actor_critic import ActorCriticModel, Trunks
from rl_training.models.actors import Actor
from rl_training.models.critics import Critic, ValueNetwork
from rl_training.models.network import Network
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp

SMALLEST_UNIFORM = 2.0**-25
"""Lower bound of the uniform numbers for samples; a sample stays finite at 0."""

ILLEGAL = -1e4
"""Log-probability of an illegal action: its exponential is 0, but products with it are finite."""


def legal_only(values: Tensor, legal: Tensor | None) -> Tensor:
    """Replace the values or logits of illegal actions by the lowest number; ``[..., actions]``.

    A maximum never chooses them, and a softmax gives them probability 0. The number is finite, so
    that p · log p is 0 for them instead of NaN.
    """
    if legal is None:
        return values
    return torch.where(legal > 0, values, torch.finfo(values.dtype).min)


def at_index(values: Tensor, actions: Tensor) -> Tensor:
    """Return the values ``[..., B]`` of the actions ``[B, 1]``, out of all ``[..., B, A]``."""
    index = actions.long().expand(*values.shape[:-1], 1)
    return values.gather(-1, index).squeeze(-1)


def gumbel(noise: Tensor) -> Tensor:
    """Return Gumbel noise −log(−log u) from uniform numbers u.

    The maximum of logits plus Gumbel noise is a sample of their softmax.
    """
    return -(-noise.clamp(min=SMALLEST_UNIFORM).log()).log()


class CategoricalActor(Actor):
    """A policy with a probability for each of several actions.

    Actions are indices ``[B, 1]`` as floats. ``legal`` masks are ``[B, actions]``, 1 for each legal
    action; illegal actions have probability 0.
    """

    def log_probs(self, obs: Tensor, legal: Tensor | None = None) -> Tensor:
        """Return log π(·|s) of all actions, ``[B, actions]``; `ILLEGAL` for illegal ones."""
        logits: Tensor = self(obs)
        log_probs = legal_only(logits, legal).log_softmax(-1)
        return log_probs if legal is None else torch.where(legal > 0, log_probs, ILLEGAL)

    def log_prob(self, obs: Tensor, actions: Tensor, legal: Tensor | None = None) -> Tensor:
        """Return log π(a|s) of given actions, ``[B]``."""
        return at_index(self.log_probs(obs, legal), actions)

    def mode(self, obs: Tensor, legal: Tensor | None = None) -> Tensor:
        """Return the most likely action, ``[B, 1]``."""
        logits: Tensor = self(obs)
        return legal_only(logits, legal).argmax(-1, keepdim=True).to(obs.dtype)

    def explore(self, obs: Tensor, noise: Tensor, legal: Tensor | None = None) -> Tensor:
        """Return sampled actions ``[B, 1]`` from uniform ``noise`` ``[B, actions]``."""
        logits: Tensor = self(obs)
        return legal_only(logits + gumbel(noise), legal).argmax(-1, keepdim=True).to(obs.dtype)

    def choose(
        self, obs: Tensor, noise: Tensor | None = None, legal: Tensor | None = None
    ) -> Tensor:
        """Return a sample, or the most likely action without ``noise``."""
        return self.mode(obs, legal) if noise is None else self.explore(obs, noise, legal)


class MultiCategoricalActor(Actor):
    """A policy with independent probabilities for each number of a MultiDiscrete action.

    Actions are indices ``[B, numbers]`` as floats. ``choices`` are the numbers of their values.
    """

    def __init__(
        self,
        obs_dim: int,
        choices: Sequence[int],
        hidden_sizes: Sequence[int],
        *,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(obs_dim, sum(choices), hidden_sizes, trunk=trunk, generator=generator)
        self.choices = list(choices)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log π(a|s) of given actions, the sum over their numbers, ``[B]``."""
        logits = torch.split_with_sizes(self(obs), self.choices, dim=-1)
        pairs = zip(logits, torch.unbind(actions.unsqueeze(-1), dim=-2), strict=True)
        return torch.stack([at_index(x.log_softmax(-1), a) for x, a in pairs]).sum(0)

    def mode(self, obs: Tensor) -> Tensor:
        """Return the most likely numbers, ``[B, numbers]``."""
        return self._largest(self(obs))

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return sampled numbers from uniform ``noise``, ``[B, sum of choices]``."""
        return self._largest(self(obs) + gumbel(noise))

    def _largest(self, scores: Tensor) -> Tensor:
        parts = torch.split_with_sizes(scores, self.choices, dim=-1)
        return torch.cat([x.argmax(-1, keepdim=True) for x in parts], -1).to(scores.dtype)


class DiscreteCritic(Critic):
    """``num_critics`` Q-networks with one output per action, evaluated together."""

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        num_critics: int,
        *,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = Sizes(obs_dim, num_actions, num_critics)
        super().__init__((trunk or plain_mlp(hidden_sizes)).build(sizes), generator)

    def all_q_values(self, obs: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q_i(s, ·) of every critic, ``[num_critics, B, actions]``."""
        values: Tensor = self(obs, flat)
        return values

    def q_values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q_i(s, a) of every critic, ``[num_critics, B]``; ``actions`` is ``[B, 1]``."""
        return at_index(self.all_q_values(obs, flat), actions)


class DiscreteQModel(nn.Module):
    """An ensemble of critics with one value per action, and their target vector; no actor."""

    target: Tensor

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        trunks: Trunks | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes, trunk = (obs_dim, num_actions, hidden_sizes), (trunks or {}).get("critic")
        self.critic = DiscreteCritic(*sizes, num_critics, trunk=trunk, generator=generator)
        self.register_buffer("target", self.critic.flat.detach().clone())

    def vectors(self) -> dict[str, Network]:
        """Return the network whose layout the target vector has, by tensor name."""
        return {"target": self.critic}

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q-values of given actions, ``[num_critics, B]``."""
        return self.critic.q_values(obs, actions)


class CategoricalActorCritic(ActorCriticModel):
    """A categorical actor and an ensemble of critics with one value per action."""

    actor: CategoricalActor
    critic: DiscreteCritic

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        trunks: Trunks | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes, trunks = (obs_dim, num_actions, hidden_sizes), trunks or {}
        actor = CategoricalActor(*sizes, trunk=trunks.get("actor"), generator=generator)
        critic = DiscreteCritic(
            *sizes, num_critics, trunk=trunks.get("critic"), generator=generator
        )
        super().__init__(actor, critic)

    def target_all_q_values(self, obs: Tensor) -> Tensor:
        """Return Q̄_i(s, ·) of the target critics, ``[num_critics, B, actions]``."""
        return self.critic.all_q_values(obs, self.target)

    def action_logprobs(self, obs: Tensor, actions: Tensor, legal: Tensor | None = None) -> Tensor:
        """Return the log-probability of given (dataset) actions, ``[B]``."""
        return self.actor.log_prob(obs, actions, legal)


class DiscreteIQLModel(CategoricalActorCritic):
    """A categorical actor, twin critics and V(s) (arXiv 2110.06169)."""

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        *,
        trunks: Trunks | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = obs_dim, num_actions, hidden_sizes, num_critics
        super().__init__(*sizes, trunks=trunks, generator=generator)
        options = (trunks or {}).get("value") or plain_mlp(hidden_sizes)
        self.value = ValueNetwork(options.build(Sizes(obs_dim, 1)), generator)

    def values(self, obs: Tensor) -> Tensor:
        """Return V(s), ``[B]``."""
        return self.value.values(obs)
