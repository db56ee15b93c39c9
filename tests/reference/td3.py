"""Float64 TD3 (arXiv 1802.09477) with hand-derived gradients.

Actions, smoothing noise and its bounds are those of the model's action space [-1, 1].
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypedDict

import numpy as np

from .ddpg import actor_loss, td_target
from .nn import (
    ActorCriticHyper,
    Array,
    Batch,
    Ensemble,
    MlpAdam,
    MlpGrads,
    Network,
    adam_critics,
    adam_network,
    checked,
    checked_batch,
    copy_network,
    critic_values,
    fresh_adam,
    initial_ensemble,
    polyak_network,
    polyak_networks,
    sizes,
    squared_loss,
    tanh_forward,
)

Penalty: TypeAlias = Callable[[Array], Array]


class Td3State(Ensemble):
    """Everything an update reads and writes; ``updates`` counts the updates made so far."""

    actor: Network
    target_actor: Network
    actor_adam: MlpAdam
    updates: int


class Noise(TypedDict):
    """Standard normal draws [B, A] for smoothing the target action."""

    next_action: Array


class Hyper(ActorCriticHyper):
    """Hyperparameters; the policy is updated on every ``policy_delay``-th update."""

    target_noise: float
    noise_clip: float
    policy_delay: int


class PolicyLoss(Protocol):
    """An actor loss and its gradient at the actor's parameters."""

    @property
    def loss(self) -> float:
        """The value that the actor step reports."""

    @property
    def grads(self) -> MlpGrads:
        """Its gradient."""


def smoothed_action(action: Array, noise: Array, scale: float, bound: float) -> Array:
    """clip(mu'(s') + clip(scale eps, -bound, bound), -1, 1), target policy smoothing."""
    return np.clip(action + np.clip(scale * noise, -bound, bound), -1.0, 1.0)


def critic_target(reward: Array, termination: Array, next_q: Array, gamma: float) -> Array:
    """Y = r + gamma (1 - d) min_i Q'_i(s', a'), [B], from next_q [N, B]."""
    return td_target(reward, termination, next_q.min(axis=0), gamma)


def critic_loss(q: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b (Q_i - y)^2 and its gradient with respect to q [N, B]; y is constant."""
    return squared_loss(q, target)


def initial_state(
    actor: Network,
    critics: Sequence[Network],
    target_actor: Network | None = None,
    target_critics: Sequence[Network] | None = None,
) -> Td3State:
    """State before the first update: float64 copies, zero moments, targets equal by default."""
    return {
        **initial_ensemble(critics, target_critics),
        "actor": copy_network(actor),
        "target_actor": copy_network(actor if target_actor is None else target_actor),
        "actor_adam": fresh_adam(actor),
        "updates": 0,
    }


def critic_step(
    state: Td3State, batch: Batch, noise: Array, hyper: Hyper, penalty: Penalty | None = None
) -> tuple[Td3State, dict[str, float]]:
    """Clipped double Q-learning with target policy smoothing: one Adam step of every critic.

    ``penalty`` of the smoothed next action, [B], is taken from every next value.
    """
    next_action, _ = tanh_forward(state["target_actor"], batch["next_observation"])
    next_action = smoothed_action(next_action, noise, hyper["target_noise"], hyper["noise_clip"])
    next_q, _ = critic_values(state["target_critics"], batch["next_observation"], next_action)
    if penalty is not None:
        next_q = next_q - penalty(next_action)
    target = critic_target(batch["reward"], batch["termination"], next_q, hyper["gamma"])
    q, caches = critic_values(state["critics"], batch["observation"], batch["action"])
    loss, grad = critic_loss(q, target)
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad[..., None], hyper["critic_lr"]
    )
    metrics = {
        "critic_loss": loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }
    return {**state, "critics": critics, "critic_adams": adams}, metrics


def policy_step(state: Td3State, policy: PolicyLoss, hyper: Hyper) -> Td3State:
    """One Adam step of the actor, then Polyak averaging into all targets."""
    actor, actor_adam = adam_network(
        state["actor"], policy.grads.network, state["actor_adam"], hyper["actor_lr"]
    )
    tau = hyper["tau"]
    return {
        **state,
        "actor": actor,
        "actor_adam": actor_adam,
        "target_actor": polyak_network(state["target_actor"], actor, tau),
        "target_critics": polyak_networks(state["target_critics"], state["critics"], tau),
    }


def delayed_update(
    state: Td3State,
    batch: Batch,
    noise: Noise,
    hyper: Hyper,
    policy_loss: Callable[[Td3State, Batch], PolicyLoss],
    penalty: Penalty | None = None,
) -> tuple[Td3State, dict[str, float]]:
    """Critics every time; actor and targets when the count of updates divides by the delay.

    The count includes this update: with delay 2, the second, fourth, ... update changes
    them. The actor's loss uses the updated critics. The input state is not modified.
    """
    batch = checked_batch(batch, *sizes(state["actor"]))
    draws = checked(noise["next_action"], batch["action"].shape, "noise next_action")
    state, metrics = critic_step(state, batch, draws, hyper, penalty)
    state["updates"] += 1
    if state["updates"] % hyper["policy_delay"] == 0:
        policy = policy_loss(state, batch)
        state = policy_step(state, policy, hyper)
        metrics["actor_loss"] = policy.loss
    return state, metrics


def full_update(
    state: Td3State, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[Td3State, dict[str, float]]:
    """One update of algorithm 1; the actor maximizes only the first critic.

    ``actor_loss`` is among the metrics on policy steps only.
    """

    def first_critic(state: Td3State, batch: Batch) -> PolicyLoss:
        return actor_loss(state["actor"], state["critics"][0], batch["observation"])

    return delayed_update(state, batch, noise, hyper, first_critic)
