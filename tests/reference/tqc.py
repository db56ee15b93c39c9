"""Float64 Truncated Quantile Critics (arXiv 2005.04269) with hand-derived gradients.

Soft Actor-Critic with N critics of M quantiles each; the target's atoms are the smallest of the
pooled quantiles.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from . import sac
from .dqn import huber
from .nn import (
    Array,
    Batch,
    MlpAdam,
    Network,
    adam_critics,
    critic_outputs,
    forward,
    polyak_networks,
)

Reduction = Literal["mean", "sum"]


class Hyper(sac.Hyper):
    """SAC's hyperparameters, the atoms d dropped per critic and the reduction over critics."""

    drop_per_critic: int
    critic_reduction: Reduction


def midpoints(count: int) -> Array:
    """The quantile fractions tau_m = (2 m - 1) / (2 M) for m = 1, ..., M."""
    m = np.arange(1, count + 1, dtype=np.float64)
    return (2.0 * m - 1.0) / (2.0 * count)


def truncated_atoms(next_quantiles: Array, drop_per_critic: int) -> Array:
    """Pool [N, B, M] to [B, N M], sort each row and drop its d N largest: [B, (M - d) N]."""
    critics, size, count = next_quantiles.shape
    pooled = np.sort(next_quantiles.transpose(1, 0, 2).reshape(size, critics * count), axis=1)
    return pooled[:, : critics * (count - drop_per_critic)]


def target_atoms(
    reward: Array,
    termination: Array,
    atoms: Array,
    next_log_prob: Array,
    alpha: float,
    gamma: float,
) -> Array:
    """y_i = r + gamma (1 - d) (z_(i)(s', a') - alpha log pi(a'|s')) for every kept atom, [B, K]."""
    column = (reward[:, None], termination[:, None])
    return sac.critic_target(*column, atoms, next_log_prob[:, None], alpha, gamma)


def quantile_loss(
    quantiles: Array, atoms: Array, reduction: Reduction = "mean"
) -> tuple[float, Array]:
    """The quantile Huber loss and its gradient with respect to quantiles [N, B, M].

    Every quantile theta_m of every critic meets every target atom y_i [B, K] of its row:
    rho(u) = |tau_m - 1[u < 0]| huber(u) with u = y_i - theta_m and threshold 1. The paper's loss
    of one critic is the mean over its M quantiles and the K atoms, and over the batch. 'mean'
    (the authors' code) also averages over the N critics, so that all four axes are averaged;
    'sum' adds the critics' losses, N times as much. The atoms are constant.
    """
    u = atoms[None, :, None, :] - quantiles[..., None]  # [N, B, M, K]
    weight = np.abs(midpoints(quantiles.shape[2])[:, None] - (u < 0.0))
    value, slope = huber(u)
    scale = {"mean": 1.0, "sum": float(len(quantiles))}[reduction]
    loss = scale * float((weight * value).mean())
    return loss, -scale * (weight * slope).sum(axis=3) / u.size


def actor_loss(
    actor: Network, critics: Sequence[Network], observation: Array, noise: Array, alpha: float
) -> sac.ActorLoss:
    """mean_b(alpha log pi(a~|s) - mean_{n,m} theta_n^m(s, a~)): all quantiles, none dropped."""
    return sac.actor_loss(actor, critics, observation, noise, alpha, sac.mean_value)


def critic_step(
    state: sac.SacState, batch: Batch, next_noise: Array, alpha: float, hyper: Hyper
) -> tuple[list[Network], list[MlpAdam], dict[str, float]]:
    """One Adam step of every critic toward the truncated mixture of the target critics.

    ``q_mean`` is the mean of all quantiles, ``target_mean`` that of all kept atoms' targets.
    """
    next_observation = batch["next_observation"]
    sample = sac.policy_sample(forward(state["actor"], next_observation)[0], next_noise)
    pooled, _ = critic_outputs(state["target_critics"], next_observation, sample.action)
    atoms = target_atoms(
        batch["reward"],
        batch["termination"],
        truncated_atoms(pooled, hyper["drop_per_critic"]),
        sample.log_prob,
        alpha,
        hyper["gamma"],
    )
    quantiles, caches = critic_outputs(state["critics"], batch["observation"], batch["action"])
    loss, grad = quantile_loss(quantiles, atoms, hyper["critic_reduction"])
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad, hyper["critic_lr"]
    )
    return critics, adams, sac.critic_metrics(loss, quantiles, atoms)


def full_update(
    state: sac.SacState, batch: Batch, noise: sac.Noise, hyper: Hyper
) -> tuple[sac.SacState, dict[str, float]]:
    """One update in SAC's order: critics, actor, temperature, target critics.

    The state is ``sac.initial_state``'s, its critics with M outputs. The input state is not
    modified.
    """
    batch, noise = sac.checked_inputs(state, batch, noise)
    alpha = sac.current_alpha(state)
    critics, adams, metrics = critic_step(state, batch, noise["next_action"], alpha, hyper)
    policy = actor_loss(state["actor"], critics, batch["observation"], noise["action"], alpha)
    new_policy, policy_metrics = sac.policy_step(state, policy, hyper)
    new_state: sac.SacState = {
        **new_policy,
        "critics": critics,
        "critic_adams": adams,
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
    }
    return new_state, metrics | policy_metrics
