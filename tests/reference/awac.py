"""Float64 AWAC (arXiv 2006.09359) with hand-derived gradients."""

import math
from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np

from .gaussian import Bounds, sample, weighted_imitation
from .nn import (
    ActorCriticHyper,
    Array,
    Batch,
    Ensemble,
    MlpAdam,
    Network,
    adam_critics,
    adam_network,
    checked,
    checked_batch,
    copy_network,
    critic_values,
    fresh_adam,
    initial_ensemble,
    polyak_networks,
    sizes,
)
from .td3 import critic_loss, critic_target

WeightForm = Literal["clip", "softmax"]


class AwacState(Ensemble):
    """Everything an update reads and writes."""

    actor: Network
    actor_adam: MlpAdam


class Noise(TypedDict):
    """Standard normal draws [B, A] for a' and for the action of the state value."""

    next_action: Array
    action: Array


class Hyper(ActorCriticHyper):
    """Hyperparameters of the actor-critic and of the advantage weights.

    ``clip_actions`` clips sampled actions to [-1, 1] before they are passed to a critic.
    """

    weight_decay: float
    temperature: float
    weight_form: WeightForm
    weight_clip: float
    log_std_bounds: Bounds
    clip_actions: bool


def advantage_weights(advantage: Array, temperature: float, form: WeightForm, clip: float) -> Array:
    """Weights [B] of the advantages A [B]; constant for the actor.

    'clip': min(exp(A / temperature), clip). 'softmax' (the authors' code): B softmax_b(A /
    temperature), so that the weights' mean is 1.
    """
    score = advantage / temperature
    if form == "clip":
        return np.exp(np.minimum(score, math.log(clip)))
    if form == "softmax":
        shifted = np.exp(score - score.max())
        return np.asarray(len(score) * shifted / shifted.sum())
    raise ValueError(f"form must be 'clip' or 'softmax', got {form!r}")


def actor_loss(
    actor: Network, observation: Array, action: Array, weights: Array, bounds: Bounds
) -> tuple[float, Network]:
    """-mean_b w log pi(a|s) at the batch's actions, and its gradient."""
    return weighted_imitation(actor, observation, action, weights, bounds)


def initial_state(
    actor: Network, critics: Sequence[Network], target_critics: Sequence[Network] | None = None
) -> AwacState:
    """State before the first update: float64 copies, zero moments, targets equal by default."""
    return {
        **initial_ensemble(critics, target_critics),
        "actor": copy_network(actor),
        "actor_adam": fresh_adam(actor),
    }


def policy_action(actor: Network, observation: Array, noise: Array, hyper: Hyper) -> Array:
    """An action [B, A] from the current actor."""
    action = sample(actor, observation, noise, hyper["log_std_bounds"])
    return np.clip(action, -1.0, 1.0) if hyper["clip_actions"] else action


def full_update(
    state: AwacState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[AwacState, dict[str, float]]:
    """One update: critics, actor, target critics, in this order.

    (1) Critics: a' from the current actor, the minimum of the target critics, no entropy term.
    (2) Actor: advantage min_i Q_i(s, a) - min_i Q_i(s, a~) of the updated critics with a~ from
    the actor before its step. (3) Polyak averaging. The input state is not modified.
    """
    batch = checked_batch(batch, *sizes(state["actor"]))
    shape = batch["action"].shape
    next_noise = checked(noise["next_action"], shape, "noise next_action")
    own_noise = checked(noise["action"], shape, "noise action")
    actor, observation, seen = state["actor"], batch["observation"], batch["next_observation"]

    next_action = policy_action(actor, seen, next_noise, hyper)
    next_q, _ = critic_values(state["target_critics"], seen, next_action)
    target = critic_target(batch["reward"], batch["termination"], next_q, hyper["gamma"])
    q, caches = critic_values(state["critics"], observation, batch["action"])
    q_loss, grad = critic_loss(q, target)
    critics, critic_adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad[..., None], hyper["critic_lr"]
    )

    own_action = policy_action(actor, observation, own_noise, hyper)
    taken, _ = critic_values(critics, observation, batch["action"])
    own, _ = critic_values(critics, observation, own_action)
    advantage = taken.min(axis=0) - own.min(axis=0)
    weights = advantage_weights(
        advantage, hyper["temperature"], hyper["weight_form"], hyper["weight_clip"]
    )
    pi_loss, grads = actor_loss(
        actor, observation, batch["action"], weights, hyper["log_std_bounds"]
    )
    new_actor, actor_adam = adam_network(
        actor, grads, state["actor_adam"], hyper["actor_lr"], hyper["weight_decay"]
    )
    new_state: AwacState = {
        "actor": new_actor,
        "critics": critics,
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
        "actor_adam": actor_adam,
        "critic_adams": critic_adams,
    }
    metrics = {
        "critic_loss": q_loss,
        "actor_loss": pi_loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
        "advantage_mean": float(advantage.mean()),
        "weight_mean": float(weights.mean()),
    }
    return new_state, metrics
