"""Float64 DQN with dueling streams, quantiles, action masks, n-step discounts and weights.

Dueling: arXiv 1511.06581, eq. 9. Quantiles: QR-DQN, arXiv 1710.10044, eqs. 9 and 10 with kappa 1;
the loss is divided by the number of quantiles. Gradients are derived by hand.
"""

from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from .dqn import DqnState, Hyper, clip_gradient, huber
from .nn import Array, MlpCache, Network, adam_network, forward, mlp_backward, polyak_network

# A dueling network also has "value" and "advantage", each a weight [W, out] and a bias [out]. Its
# layers compute the hidden layer [B, 2 W] of both streams, first that of the value.
STREAMS = ("value", "advantage")


class ExtendedBatch(TypedDict):
    """Transitions as in ``dqn.DiscreteBatch``, with three more arrays.

    They are the legal actions at s' (1.0 or 0.0) [B, K], the discount gamma^m of the next value [B]
    and the importance weight [B].
    """

    observation: Array
    action: npt.NDArray[np.int64]
    reward: Array
    next_observation: Array
    termination: Array
    next_legal: Array
    discount: Array
    weight: Array


class Pass(NamedTuple):
    """Values [B, K, M] of K actions with M quantiles, and the cache for the backward pass."""

    values: Array
    cache: MlpCache
    hidden: Array


def evaluate(net: Network, x: Array, actions: int) -> Pass:
    """The layers' output, or with streams V_m + A_m - mean_a A_m after one more ReLU layer."""
    output, cache = forward(net, x)
    if "value" not in net:
        return Pass(output.reshape(len(x), actions, -1), cache, output)
    hidden = np.maximum(output, 0.0)
    half = hidden.shape[1] // 2
    value = hidden[:, :half] @ net["value"][0] + net["value"][1]  # [B, M]
    flat = hidden[:, half:] @ net["advantage"][0] + net["advantage"][1]
    advantage = flat.reshape(len(x), actions, -1)  # [B, K, M]
    values = np.empty_like(advantage)
    for action in range(actions):
        values[:, action] = value + advantage[:, action] - advantage.sum(axis=1) / actions
    return Pass(values, cache, hidden)


def backward(net: Network, run: Pass, grad: Array) -> Network:
    """Gradients of all arrays for the gradient [B, K, M] at the values."""
    if "value" not in net:
        return mlp_backward(run.cache, grad.reshape(len(grad), -1)).network
    half = run.hidden.shape[1] // 2
    at_value = grad.sum(axis=1)  # dQ_a / dV = 1
    actions = grad.shape[1]
    at_advantage = np.stack(  # dQ_b / dA_a = 1[a = b] - 1 / K
        [grad[:, a] - grad.sum(axis=1) / actions for a in range(actions)], axis=1
    ).reshape(len(grad), -1)
    for_value, for_advantage = run.hidden[:, :half], run.hidden[:, half:]
    at_hidden = np.concatenate(
        [at_value @ net["value"][0].T, at_advantage @ net["advantage"][0].T], axis=1
    )
    layers = mlp_backward(run.cache, at_hidden * (run.hidden > 0.0)).network
    return {
        **layers,
        "value": [for_value.T @ at_value, at_value.sum(axis=0)],
        "advantage": [for_advantage.T @ at_advantage, at_advantage.sum(axis=0)],
    }


def targets(next_online: Array, next_target: Array, batch: ExtendedBatch, double: bool) -> Array:
    """y_j = r + gamma^m (1 - d) theta'_j(s', a*) [B, M], for values [B, K, M] of both networks.

    a* has the largest mean of its quantiles among the legal actions: those of the online network
    for Double DQN, otherwise those of the target network.
    """
    rows = []
    for b in range(len(next_target)):
        chooser = (next_online if double else next_target)[b].mean(axis=1)
        legal = [a for a in range(len(chooser)) if batch["next_legal"][b, a] == 1.0]
        best = max(legal, key=lambda a: (chooser[a], -a))
        continues = batch["discount"][b] * (1.0 - batch["termination"][b])
        rows.append(batch["reward"][b] + continues * next_target[b, best])
    return np.stack(rows)


def quantile_loss(theta: Array, y: Array) -> tuple[Array, Array]:
    """The loss [B] of every row and its gradient with respect to theta [B, M]; y is constant.

    Pairs every quantile theta_i, tau_i = (2 i - 1) / (2 M), with every target y_j:
    mean_i mean_j |tau_i - 1[u < 0]| huber(u) with u = y_j - theta_i. A single value is not a
    quantile but the expected return, with the plain Huber loss.
    """
    rows, count = theta.shape
    if count == 1:
        value, slope = huber(theta[:, 0] - y[:, 0])
        return value, slope[:, None]
    loss, grad = np.zeros(rows), np.zeros_like(theta)
    for i in range(count):
        tau = (2.0 * (i + 1) - 1.0) / (2.0 * count)
        for j in range(count):
            u = y[:, j] - theta[:, i]
            value, slope = huber(u)
            weight = np.where(u < 0.0, 1.0 - tau, tau)
            loss += weight * value / count**2
            grad[:, i] -= weight * slope / count**2
    return loss, grad


def full_update(
    state: DqnState, batch: ExtendedBatch, hyper: Hyper
) -> tuple[DqnState, dict[str, float], Array]:
    """One update as in ``dqn.full_update``; also returns the absolute TD error [B] of every row.

    The TD error is the difference of the means of the quantiles and of the targets.
    """
    actions = batch["next_legal"].shape[1]
    next_online = evaluate(state["network"], batch["next_observation"], actions).values
    next_target = evaluate(state["target_network"], batch["next_observation"], actions).values
    y = targets(next_online, next_target, batch, hyper["double"])
    run = evaluate(state["network"], batch["observation"], actions)
    rows = np.arange(len(y))
    theta = run.values[rows, batch["action"]]  # [B, M]
    losses, slopes = quantile_loss(theta, y)
    grad = np.zeros_like(run.values)
    grad[rows, batch["action"]] = slopes * batch["weight"][:, None] / len(y)
    gradient = clip_gradient(backward(state["network"], run, grad), hyper["max_grad_norm"])
    network, adam = adam_network(state["network"], gradient, state["adam"], hyper["learning_rate"])
    updates = state["updates"] + 1
    tau = hyper["tau"] if updates % hyper["target_period"] == 0 else 0.0
    new_state: DqnState = {
        "network": network,
        "target_network": polyak_network(state["target_network"], network, tau),
        "adam": adam,
        "updates": updates,
    }
    metrics = {
        "loss": float((losses * batch["weight"]).mean()),
        "q_mean": float(theta.mean()),
        "target_mean": float(y.mean()),
    }
    return new_state, metrics, np.abs(theta.mean(axis=1) - y.mean(axis=1))
