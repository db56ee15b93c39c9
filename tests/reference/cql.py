"""Float64 Conservative Q-Learning (arXiv 2006.04779) with hand-derived gradients.

CQL(H) with importance sampling over Soft Actor-Critic, in SAC's order of steps.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import sac
from .nn import (
    Array,
    Batch,
    MlpCache,
    Network,
    adam_critics,
    adam_step,
    checked,
    critic_values,
    forward,
    mlp_backward,
    polyak_networks,
    squared_loss,
)

ALPHA_PRIME_MAX = 1e6


class CqlState(sac.SacState):
    """SAC's state with the Lagrange multiplier and the count of the updates made so far."""

    log_alpha_prime: Array
    log_alpha_prime_adam: sac.ScalarAdam
    updates: int


class Noise(sac.Noise):
    """SAC's noise and, for K actions of each kind, [K, B, A].

    ``random_actions`` are uniform in [-1, 1]; the other two are standard normal draws for the
    policy's actions at s and at s'.
    """

    random_actions: Array
    current_actions: Array
    next_actions: Array


class Hyper(sac.Hyper):
    """SAC's hyperparameters and those of the conservative term.

    ``threshold`` None means a fixed weight, a number the Lagrange form. In the first
    ``imitation_updates`` updates the actor imitates the batch instead of maximizing Q.
    """

    conservative_weight: float
    conservative_temperature: float
    threshold: float | None
    alpha_prime_lr: float
    backup_entropy: bool
    imitation_updates: int


class Scored(NamedTuple):
    """Q [N, B] at the batch's actions, Q [N, S, B] at the sampled ones, and the passes' caches."""

    q: Array
    sampled: Array
    caches: list[MlpCache]


class CriticLoss(NamedTuple):
    """Loss terms and the gradients at Q of the batch [N, B] and of the samples [N, S, B]."""

    loss: float
    bellman: float
    gaps: Array
    grad_q: Array
    grad_sampled: Array


def sampled_actions(actor: Network, batch: Batch, noise: Noise) -> tuple[Array, Array]:
    """The 3 K actions [3K, B, A] of the logsumexp and their log-densities [3K, B].

    Uniform actions have density 0.5^A; then come actions from pi(.|s) with log pi(a|s) and
    actions from pi(.|s') with log pi(a|s'). All of them are constants for the critics.
    """
    uniform = noise["random_actions"]
    actions = list(uniform)
    densities = [np.full(uniform.shape[1], uniform.shape[2] * math.log(0.5)) for _ in uniform]
    kinds = (
        (batch["observation"], noise["current_actions"]),
        (batch["next_observation"], noise["next_actions"]),
    )
    for seen, draws in kinds:
        output, _ = forward(actor, seen)
        for each in draws:
            sample = sac.policy_sample(output, each)
            actions.append(sample.action)
            densities.append(sample.log_prob)
    return np.stack(actions), np.stack(densities)


def score(critics: Sequence[Network], batch: Batch, actions: Array) -> Scored:
    """Every critic at (s, a) of the batch and at (s, a_k) of the sampled actions [S, B, A]."""
    count, size, width = actions.shape
    observation = np.tile(batch["observation"], (count + 1, 1))
    every = np.concatenate([batch["action"], actions.reshape(count * size, width)])
    q, caches = critic_values(critics, observation, every)
    return Scored(q[:, :size], q[:, size:].reshape(len(q), count, size), caches)


def conservative_gap(
    q: Array, sampled: Array, log_density: Array, temperature: float
) -> tuple[Array, Array, Array]:
    """Each critic's gap [N] and its gradients at q [N, B] and at the sampled values [N, S, B].

    gap_i = mean_b(T log sum_k exp((Q_i(s, a_k) - log mu(a_k)) / T) - Q_i(s, a)): a sum over the
    S samples, not their mean. The log-densities [S, B] are constant.
    """
    score = (sampled - log_density) / temperature
    top = score.max(axis=1, keepdims=True)
    shifted = np.exp(score - top)
    total = shifted.sum(axis=1, keepdims=True)
    soft_maximum = temperature * (top + np.log(total))[:, 0]
    size = q.shape[1]
    return (soft_maximum - q).mean(axis=1), np.full_like(q, -1.0 / size), shifted / total / size


def critic_loss(
    scored: Scored, target: Array, log_density: Array, alpha_prime: float, hyper: Hyper
) -> CriticLoss:
    """sum_i [mean_b (Q_i - y)^2 + w gap_i], y [B] constant.

    The squared error has no factor 1/2, as in the authors' code. In the Lagrange form the
    second term is alpha' (w gap_i - threshold), with alpha' constant.
    """
    bellman, grad_q = squared_loss(scored.q, target)
    gaps, grad_at_data, grad_at_samples = conservative_gap(
        scored.q, scored.sampled, log_density, hyper["conservative_temperature"]
    )
    weight, threshold = hyper["conservative_weight"], hyper["threshold"]
    if threshold is None:
        penalty, scale = weight * gaps, weight
    else:
        penalty, scale = alpha_prime * (weight * gaps - threshold), alpha_prime * weight
    return CriticLoss(
        bellman + float(penalty.sum()),
        bellman,
        gaps,
        grad_q + scale * grad_at_data,
        scale * grad_at_samples,
    )


def alpha_prime_of(log_alpha_prime: float) -> tuple[float, float]:
    """Alpha' = min(exp(log alpha'), 1e6) and its slope in log alpha'."""
    value = math.exp(log_alpha_prime)
    return (value, value) if value <= ALPHA_PRIME_MAX else (ALPHA_PRIME_MAX, 0.0)


def multiplier_loss(
    log_alpha_prime: float, gaps: Array, weight: float, threshold: float
) -> tuple[float, float]:
    """-alpha' mean_i(w gap_i - threshold) and its gradient in log alpha'; gaps [N] constant."""
    value, slope = alpha_prime_of(log_alpha_prime)
    excess = float((weight * gaps - threshold).mean())
    return -value * excess, -slope * excess


def imitation_actor_loss(
    actor: Network,
    critics: Sequence[Network],
    batch: Batch,
    noise: Array,
    alpha: float,
) -> sac.ActorLoss:
    """mean_b(alpha log pi(a~|s) - log pi(a|s)) with a the batch's action, and its gradient."""
    observation = batch["observation"]
    output, cache = forward(actor, observation)
    sample = sac.policy_sample(output, noise)
    mean, log_std, unclipped = sac.split_actor_output(output)
    log_prob = sac.log_prob_of_action(mean, log_std, batch["action"])
    size = len(log_prob)
    loss = float((alpha * sample.log_prob - log_prob).mean())

    clipped = np.clip(batch["action"], -sac.ACTION_CLIP, sac.ACTION_CLIP)
    z = (np.arctanh(clipped) - mean) * np.exp(-log_std)
    entropy_part = sac.policy_backward(
        sample, np.zeros_like(sample.action), np.full(size, alpha / size)
    )
    likelihood_part = np.concatenate([z * np.exp(-log_std), (z * z - 1.0) * unclipped], axis=1)
    q, _ = critic_values(critics, observation, sample.action)
    grads = mlp_backward(cache, entropy_part - likelihood_part / size)
    return sac.ActorLoss(loss, grads, sample.log_prob, q)


def initial_state(start: sac.SacState, log_alpha_prime: float = 0.0) -> CqlState:
    """``sac.initial_state``'s state with the multiplier exp(log_alpha_prime)."""
    return {
        **start,
        "log_alpha_prime": np.array(log_alpha_prime, dtype=np.float64),
        "log_alpha_prime_adam": {"m": np.zeros(()), "v": np.zeros(()), "t": 0},
        "updates": 0,
    }


def multiplier_step(
    state: CqlState, gaps: Array, hyper: Hyper
) -> tuple[Array, sac.ScalarAdam, dict[str, float]]:
    """One Adam step on log alpha'; no change without a threshold."""
    log, adam, threshold = (
        state["log_alpha_prime"],
        state["log_alpha_prime_adam"],
        hyper["threshold"],
    )
    if threshold is None:
        return log, adam, {}
    loss, grad = multiplier_loss(float(log), gaps, hyper["conservative_weight"], threshold)
    t = adam["t"] + 1
    new, m, v = adam_step(log, np.array(grad), adam["m"], adam["v"], t, hyper["alpha_prime_lr"])
    metrics = {"alpha_prime": alpha_prime_of(float(log))[0], "alpha_prime_loss": loss}
    return new, {"m": m, "v": v, "t": t}, metrics


def critic_step(
    state: CqlState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[CqlState, dict[str, float]]:
    """One Adam step of every critic and of the multiplier, both with alpha' before its step."""
    seen = batch["next_observation"]
    sample = sac.policy_sample(forward(state["actor"], seen)[0], noise["next_action"])
    next_q, _ = critic_values(state["target_critics"], seen, sample.action)
    alpha = sac.current_alpha(state) if hyper["backup_entropy"] else 0.0
    ends = batch["reward"], batch["termination"]
    target = sac.critic_target(*ends, next_q.min(axis=0), sample.log_prob, alpha, hyper["gamma"])
    actions, log_density = sampled_actions(state["actor"], batch, noise)
    scored = score(state["critics"], batch, actions)
    alpha_prime, _ = alpha_prime_of(float(state["log_alpha_prime"]))
    result = critic_loss(scored, target, log_density, alpha_prime, hyper)
    count = len(scored.q)
    grad = np.concatenate([result.grad_q, result.grad_sampled.reshape(count, -1)], axis=1)
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], scored.caches, grad[..., None], hyper["critic_lr"]
    )
    log_alpha_prime, adam, metrics = multiplier_step(state, result.gaps, hyper)
    new_state: CqlState = {
        **state,
        "critics": critics,
        "critic_adams": adams,
        "log_alpha_prime": log_alpha_prime,
        "log_alpha_prime_adam": adam,
        "updates": state["updates"] + 1,
    }
    metrics |= {"bellman_loss": result.bellman, "gap_mean": float(result.gaps.mean())}
    return new_state, metrics | sac.critic_metrics(result.loss, scored.q, target)


def checked_inputs(state: CqlState, batch: Batch, noise: Noise) -> tuple[Batch, Noise]:
    """The batch and the noise in float64; a wrong shape raises an error."""
    batch, pair = sac.checked_inputs(state, batch, noise)
    shape = (len(noise["random_actions"]), *batch["action"].shape)
    return batch, {
        **pair,
        "random_actions": checked(noise["random_actions"], shape, "noise random_actions"),
        "current_actions": checked(noise["current_actions"], shape, "noise current_actions"),
        "next_actions": checked(noise["next_actions"], shape, "noise next_actions"),
    }


def full_update(
    state: CqlState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[CqlState, dict[str, float]]:
    """One update: critics with the multiplier, actor, temperature, target critics.

    The sampled actions come from the actor before its step; the actor's loss sees the updated
    critics. ``critic_loss`` is the whole sum; ``gap_mean`` the mean of the critics' gaps without
    their weight. The input state is not modified.
    """
    batch, noise = checked_inputs(state, batch, noise)
    alpha = sac.current_alpha(state)
    state, metrics = critic_step(state, batch, noise, hyper)
    critics, draws = state["critics"], noise["action"]
    if state["updates"] <= hyper["imitation_updates"]:
        policy = imitation_actor_loss(state["actor"], critics, batch, draws, alpha)
    else:
        policy = sac.actor_loss(state["actor"], critics, batch["observation"], draws, alpha)
    new_policy, policy_metrics = sac.policy_step(state, policy, hyper)
    targets = polyak_networks(state["target_critics"], critics, hyper["tau"])
    return {**state, **new_policy, "target_critics": targets}, metrics | policy_metrics
