"""Float64 EDAC (arXiv 2110.01548) with hand-derived gradients, the double backward included.

Soft Actor-Critic with the minimum over all N critics in target and actor, and a penalty on
aligned action gradients of the critics; eta 0 is SAC-N. All N critics take part in the penalty,
as in the paper (the authors' code draws min(N, A) of them for each update).
"""

from collections.abc import Sequence

import numpy as np

from . import sac
from .nn import (
    Array,
    Batch,
    MlpCache,
    Network,
    adam_network,
    critic_values,
    forward,
    mlp_backward,
    polyak_networks,
    squared_loss,
)

NORM_EPS = 1e-10


class Hyper(sac.Hyper):
    """SAC's hyperparameters and the weight eta of the diversity term."""

    eta: float


def q_action_gradient(cache: MlpCache, action_size: int) -> Array:
    """dQ/da [B, A] of one critic."""
    unit = np.ones((len(cache.inputs[0]), 1))
    return mlp_backward(cache, unit).inputs[:, -action_size:]


def q_action_gradient_backward(cache: MlpCache, direction: Array) -> Network:
    """Gradient of sum_b dQ/da . direction at a ReLU critic's parameters, direction [B, A] fixed.

    With its masks fixed the network is linear, so that sum_b dQ/da . direction is the output of
    the tangents t_0 = [0, direction], t_{i+1} = (t_i W_i) 1[h_{i+1} > 0]. It is linear in every
    W_i, with gradient t_i^T delta_i, where delta_i is dQ/d(h_i W_i + b_i). Biases move masks
    only, hence 0.
    """
    size, inputs = cache.inputs[0].shape
    tangents = [np.concatenate([np.zeros((size, inputs - direction.shape[1])), direction], axis=1)]
    for i, weight in enumerate(cache.weights[:-1]):
        tangents.append((tangents[i] @ weight) * (cache.inputs[i + 1] > 0.0))
    delta = np.ones((size, 1))
    grads: Network = {"weights": [], "biases": []}
    for i in reversed(range(len(cache.weights))):
        grads["weights"].insert(0, tangents[i].T @ delta)
        grads["biases"].insert(0, np.zeros(cache.weights[i].shape[1]))
        delta = (delta @ cache.weights[i].T) * (cache.inputs[i] > 0.0)
    return grads


def diversity_loss(gradients: Array) -> tuple[float, Array]:
    """mean_b sum_{i != j} <g_i, g_j> / (N - 1) of the normalized dQ_i/da, and its gradient.

    ``gradients`` is [N, B, A]; g_i = dQ_i/da / (|dQ_i/da| + 1e-10). N aligned critics give N,
    orthogonal ones 0. Where dQ_i/da is 0, the slope of its norm is taken as 0.
    """
    count, size, _ = gradients.shape
    norm = np.sqrt((gradients * gradients).sum(axis=2, keepdims=True))
    unit = gradients / (norm + NORM_EPS)
    others = unit.sum(axis=0) - unit
    scale = 1.0 / (size * (count - 1))
    loss = scale * float((unit * others).sum())
    grad_unit = 2.0 * scale * others
    along = (grad_unit * unit).sum(axis=2, keepdims=True)
    direction = np.divide(gradients, norm, out=np.zeros_like(gradients), where=norm > 0.0)
    return loss, (grad_unit - along * direction) / (norm + NORM_EPS)


def critic_diversity(
    critics: Sequence[Network], observation: Array, action: Array
) -> tuple[float, list[Network]]:
    """The diversity loss at the batch's actions and its gradient at every critic's parameters."""
    _, caches = critic_values(critics, observation, action)
    gradients = np.stack([q_action_gradient(cache, action.shape[1]) for cache in caches])
    loss, directions = diversity_loss(gradients)
    pairs = zip(caches, directions, strict=True)
    return loss, [q_action_gradient_backward(cache, each) for cache, each in pairs]


def critic_loss(
    critics: Sequence[Network], observation: Array, action: Array, target: Array, eta: float
) -> tuple[float, float, Array, list[Network]]:
    """sum_i mean_b (Q_i - y)^2 + eta diversity, y [B] constant.

    Returns the loss, its diversity term without eta, Q [N, B] and each critic's gradient.
    """
    q, caches = critic_values(critics, observation, action)
    bellman, grad_q = squared_loss(q, target)
    diversity, extra = critic_diversity(critics, observation, action)
    grads = []
    for cache, grad, more in zip(caches, grad_q, extra, strict=True):
        plain = mlp_backward(cache, grad[:, None]).network
        grads.append(
            {
                key: [one + eta * two for one, two in zip(plain[key], more[key], strict=True)]
                for key in plain
            }
        )
    return bellman + eta * diversity, diversity, q, grads


def full_update(
    state: sac.SacState, batch: Batch, noise: sac.Noise, hyper: Hyper
) -> tuple[sac.SacState, dict[str, float]]:
    """One update in SAC's order: critics, actor, temperature, target critics.

    The state is ``sac.initial_state``'s with N critics; the minimum is over all of them.
    ``critic_loss`` holds the diversity term. The input state is not modified.
    """
    batch, noise = sac.checked_inputs(state, batch, noise)
    alpha, seen = sac.current_alpha(state), batch["next_observation"]
    sample = sac.policy_sample(forward(state["actor"], seen)[0], noise["next_action"])
    next_q, _ = critic_values(state["target_critics"], seen, sample.action)
    ends = batch["reward"], batch["termination"]
    target = sac.critic_target(*ends, next_q.min(axis=0), sample.log_prob, alpha, hyper["gamma"])
    at = batch["observation"], batch["action"]
    loss, diversity, q, grads = critic_loss(state["critics"], *at, target, hyper["eta"])
    steps = [
        adam_network(critic, grad, adam, hyper["critic_lr"])
        for critic, grad, adam in zip(state["critics"], grads, state["critic_adams"], strict=True)
    ]
    critics = [critic for critic, _ in steps]
    policy = sac.actor_loss(state["actor"], critics, at[0], noise["action"], alpha)
    new_policy, policy_metrics = sac.policy_step(state, policy, hyper)
    new_state: sac.SacState = {
        **new_policy,
        "critics": critics,
        "critic_adams": [adam for _, adam in steps],
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
    }
    metrics = sac.critic_metrics(loss, q, target) | {"diversity_loss": diversity}
    return new_state, metrics | policy_metrics
