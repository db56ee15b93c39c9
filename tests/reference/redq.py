"""Float64 REDQ (arXiv 2101.05982) with hand-derived gradients.

Soft Actor-Critic with N critics, a random subset of M of them in the target, and one step of
actor and temperature for each block of G critic updates.
"""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from . import sac
from .nn import (
    Array,
    Batch,
    Network,
    adam_critics,
    checked,
    checked_batch,
    critic_values,
    forward,
    polyak_networks,
    sizes,
    squared_loss,
)


class RedqState(sac.SacState):
    """SAC's state; ``updates`` counts the updates made so far."""

    updates: int


class CriticNoise(TypedDict):
    """Standard normal draws [B, A] for a' and the uniform numbers [N] that determine the subset."""

    next_action: Array
    subset: Array


class Noise(CriticNoise, total=False):
    """The last update of a block also takes standard normal draws [B, A] for the actor."""

    action: Array


class Hyper(sac.Hyper):
    """SAC's hyperparameters, the subset's size M and the updates G of a block."""

    subset_size: int
    block: int


def subset(uniforms: Array, size: int) -> npt.NDArray[np.int64]:
    """The indices of the ``size`` smallest of the uniform numbers [N], in ascending order."""
    return np.sort(np.argsort(uniforms, kind="stable")[:size])


def critic_target(
    reward: Array,
    termination: Array,
    next_q: Array,
    members: npt.NDArray[np.int64],
    next_log_prob: Array,
    alpha: float,
    gamma: float,
) -> Array:
    """Y = r + gamma (1 - d) (min_{i in members} Q'_i(s', a') - alpha log pi(a'|s')), [B]."""
    least = next_q[members].min(axis=0)
    return sac.critic_target(reward, termination, least, next_log_prob, alpha, gamma)


def critic_loss(q: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b (Q_i - y)^2 over all N critics and its gradient at q [N, B]; y is constant."""
    return squared_loss(q, target)


def actor_loss(
    actor: Network, critics: Sequence[Network], observation: Array, noise: Array, alpha: float
) -> sac.ActorLoss:
    """mean_b(alpha log pi(a~|s) - mean_i Q_i(s, a~)), the mean over all N critics."""
    return sac.actor_loss(actor, critics, observation, noise, alpha, sac.mean_value)


def initial_state(
    actor: Network,
    critics: Sequence[Network],
    log_alpha: float = 0.0,
    fixed_alpha: float | None = None,
    target_critics: Sequence[Network] | None = None,
) -> RedqState:
    """SAC's initial state, before the first update."""
    state = sac.initial_state(actor, critics, log_alpha, fixed_alpha, target_critics)
    return {**state, "updates": 0}


def critic_step(
    state: RedqState, batch: Batch, noise: CriticNoise, alpha: float, hyper: Hyper
) -> tuple[RedqState, dict[str, float]]:
    """One Adam step of every critic toward the subset's target, then Polyak averaging."""
    draws = checked(noise["next_action"], batch["action"].shape, "noise next_action")
    uniforms = checked(noise["subset"], (len(state["critics"]),), "noise subset")
    sample = sac.policy_sample(forward(state["actor"], batch["next_observation"])[0], draws)
    next_q, _ = critic_values(state["target_critics"], batch["next_observation"], sample.action)
    target = critic_target(
        batch["reward"],
        batch["termination"],
        next_q,
        subset(uniforms, hyper["subset_size"]),
        sample.log_prob,
        alpha,
        hyper["gamma"],
    )
    q, caches = critic_values(state["critics"], batch["observation"], batch["action"])
    loss, grad = critic_loss(q, target)
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad[..., None], hyper["critic_lr"]
    )
    new_state: RedqState = {
        **state,
        "critics": critics,
        "critic_adams": adams,
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
        "updates": state["updates"] + 1,
    }
    return new_state, sac.critic_metrics(loss, q, target)


def full_update(
    state: RedqState, batch: Batch, noise: Noise, hyper: Hyper, target_alpha: float | None = None
) -> tuple[RedqState, dict[str, float]]:
    """One critic update of algorithm 1 and, on the last one of a block, actor and temperature.

    Targets follow the critics on every update. The actor's step sees the updated critics and
    the alpha before its own step, and its metrics are reported only there. ``target_alpha``
    replaces alpha in the target. The input state is not modified.
    """
    observation_size, output_size = sizes(state["actor"])
    batch = checked_batch(batch, observation_size, output_size // 2)
    alpha = sac.current_alpha(state)
    in_target = alpha if target_alpha is None else target_alpha
    state, metrics = critic_step(state, batch, noise, in_target, hyper)
    if state["updates"] % hyper["block"] == 0:
        draws = checked(noise["action"], batch["action"].shape, "noise action")
        policy = actor_loss(state["actor"], state["critics"], batch["observation"], draws, alpha)
        new_policy, policy_metrics = sac.policy_step(state, policy, hyper)
        state = {**state, **new_policy}
        metrics |= policy_metrics
    return state, metrics
