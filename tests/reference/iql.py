"""Float64 Implicit Q-Learning (arXiv 2110.06169) with hand-derived gradients."""

import math
from collections.abc import Sequence

import numpy as np

from .ddpg import td_target
from .gaussian import Bounds, weighted_imitation
from .nn import (
    ActorCriticHyper,
    Array,
    Batch,
    Ensemble,
    MlpAdam,
    Network,
    adam_critics,
    adam_network,
    checked_batch,
    copy_network,
    critic_values,
    forward,
    fresh_adam,
    initial_ensemble,
    mlp_backward,
    polyak_networks,
    sizes,
    squared_loss,
)


class IqlState(Ensemble):
    """Everything an update reads and writes; ``value`` is V(s)."""

    actor: Network
    value: Network
    actor_adam: MlpAdam
    value_adam: MlpAdam


class Hyper(ActorCriticHyper):
    """Hyperparameters of the actor-critic, of the value and of the advantage weights."""

    value_lr: float
    expectile: float
    beta: float
    weight_clip: float
    log_std_bounds: Bounds


def cosine_rate(rate: float, step: int, total: int) -> float:
    """Rate (1 + cos(pi step / total)) / 2 for the update after ``step`` earlier ones."""
    return rate * 0.5 * (1.0 + math.cos(math.pi * step / total))


def value_loss(v: Array, q: Array, expectile: float) -> tuple[float, Array]:
    """mean_b |expectile - 1[u < 0]| u^2 with u = q - v, and its gradient with respect to v [B].

    q [B] is the minimum of the target critics at the batch's actions and constant.
    """
    u = q - v
    weight = np.abs(expectile - (u < 0.0))
    return float((weight * u * u).mean()), -2.0 * weight * u / len(v)


def advantage_weights(q: Array, v: Array, beta: float, clip: float) -> Array:
    """min(exp(beta (q - v)), clip), [B]; constant for the actor."""
    return np.exp(np.minimum(beta * (q - v), math.log(clip)))


def actor_loss(
    actor: Network, observation: Array, action: Array, weights: Array, bounds: Bounds
) -> tuple[float, Network]:
    """-mean_b w log pi(a|s) at the batch's actions, and its gradient."""
    return weighted_imitation(actor, observation, action, weights, bounds)


def critic_loss(q: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b (Q_i - y)^2 and its gradient at q [N, B], with y = r + gamma (1 - d) V(s')."""
    return squared_loss(q, target)


def initial_state(
    actor: Network,
    critics: Sequence[Network],
    value: Network,
    target_critics: Sequence[Network] | None = None,
) -> IqlState:
    """State before the first update: float64 copies, zero moments, targets equal by default."""
    return {
        **initial_ensemble(critics, target_critics),
        "actor": copy_network(actor),
        "value": copy_network(value),
        "actor_adam": fresh_adam(actor),
        "value_adam": fresh_adam(value),
    }


def full_update(state: IqlState, batch: Batch, hyper: Hyper) -> tuple[IqlState, dict[str, float]]:
    """One update in the authors' order: value, actor, critics, target critics.

    (1) V toward the expectile of the target critics' minimum. (2) Actor: advantage from the
    same minimum and the updated V. (3) Critics toward the updated V(s'). (4) Polyak averaging
    of the updated critics. ``v_mean`` is V(s) before its step. The input state is not modified.
    """
    batch = checked_batch(batch, *sizes(state["actor"]))
    at = batch["observation"], batch["action"]
    target_q = critic_values(state["target_critics"], *at)[0].min(axis=0)

    v, cache = forward(state["value"], batch["observation"])
    v_loss, grad_v = value_loss(v[:, 0], target_q, hyper["expectile"])
    value, value_adam = adam_network(
        state["value"],
        mlp_backward(cache, grad_v[:, None]).network,
        state["value_adam"],
        hyper["value_lr"],
    )

    new_v, _ = forward(value, batch["observation"])
    weights = advantage_weights(target_q, new_v[:, 0], hyper["beta"], hyper["weight_clip"])
    pi_loss, grads = actor_loss(state["actor"], *at, weights, hyper["log_std_bounds"])
    actor, actor_adam = adam_network(state["actor"], grads, state["actor_adam"], hyper["actor_lr"])

    next_v, _ = forward(value, batch["next_observation"])
    target = td_target(batch["reward"], batch["termination"], next_v[:, 0], hyper["gamma"])
    q, caches = critic_values(state["critics"], *at)
    q_loss, grad_q = critic_loss(q, target)
    critics, critic_adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad_q[..., None], hyper["critic_lr"]
    )
    new_state: IqlState = {
        "actor": actor,
        "critics": critics,
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
        "value": value,
        "actor_adam": actor_adam,
        "critic_adams": critic_adams,
        "value_adam": value_adam,
    }
    metrics = {
        "value_loss": v_loss,
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        "v_mean": float(v.mean()),
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
        "advantage_mean": float((target_q - new_v[:, 0]).mean()),
        "weight_mean": float(weights.mean()),
    }
    return new_state, metrics
