"""Float64 DQN and Double DQN (arXiv 1312.5602, 1509.06461) with hand-derived gradients.

The squared error's gradient is clipped to [-1, 1], which is the Huber loss with threshold 1.
"""

from typing import TypedDict

import numpy as np
import numpy.typing as npt

from .ddpg import td_target
from .nn import (
    Array,
    MlpAdam,
    Network,
    adam_network,
    checked_batch,
    copy_network,
    forward,
    fresh_adam,
    mlp_backward,
    polyak_network,
    sizes,
)


class DqnState(TypedDict):
    """Everything an update reads and writes; ``updates`` counts the updates made so far."""

    network: Network
    target_network: Network
    adam: MlpAdam
    updates: int


class DiscreteBatch(TypedDict):
    """Transitions: [B, O], action indices [B], [B], [B, O] and [B] (1.0 where s' is terminal)."""

    observation: Array
    action: npt.NDArray[np.int64]
    reward: Array
    next_observation: Array
    termination: Array


class Hyper(TypedDict):
    """Hyperparameters; Adam's betas and eps are the defaults of ``adam_step``.

    The target is updated by ``tau`` after every ``target_period``-th update: tau 1 and period C are
    the hard copy every C updates, period 1 and a small tau are Polyak averaging. A gradient longer
    than ``max_grad_norm`` is shortened to it.
    """

    gamma: float
    tau: float
    target_period: int
    learning_rate: float
    double: bool
    max_grad_norm: float | None


def huber(error: Array) -> tuple[Array, Array]:
    """Elementwise e^2 / 2 where |e| <= 1, else |e| - 1/2; and its slope clip(e, -1, 1)."""
    size = np.abs(error)
    return np.where(size <= 1.0, 0.5 * error * error, size - 0.5), np.clip(error, -1.0, 1.0)


def next_value(
    next_q: Array, next_q_target: Array, double: bool, legal: Array | None = None
) -> Array:
    """The value [B] of s' from the online and the target network's [B, K].

    DQN: max_a Q'(s', a). Double DQN: Q'(s', argmax_a Q(s', a)), ties to the first action. With
    ``legal`` [B, K], both range over the actions whose entry is 1.
    """
    chooser = next_q if double else next_q_target
    if legal is not None:
        chooser = np.where(legal == 1.0, chooser, -np.inf)
    chosen = chooser.argmax(axis=1)
    return np.take_along_axis(next_q_target, chosen[:, None], axis=1)[:, 0]


def dqn_loss(q: Array, action: npt.NDArray[np.int64], target: Array) -> tuple[float, Array]:
    """mean_b huber(Q(s, a) - y) and its gradient with respect to q [B, K]; y is constant."""
    rows = np.arange(len(q))
    value, slope = huber(q[rows, action] - target)
    grad = np.zeros_like(q)
    grad[rows, action] = slope / len(q)
    return float(value.mean()), grad


def clip_gradient(gradient: Network, limit: float | None) -> Network:
    """All arrays times min(1, limit / (length + 1e-6)), the length of all of them as one vector."""
    if limit is None:
        return gradient
    length = np.sqrt(sum(float((a * a).sum()) for arrays in gradient.values() for a in arrays))
    factor = min(1.0, limit / (length + 1e-6))
    return {kind: [factor * array for array in arrays] for kind, arrays in gradient.items()}


def initial_state(network: Network, target_network: Network | None = None) -> DqnState:
    """State before the first update: float64 copies, zero moments, target equal by default."""
    return {
        "network": copy_network(network),
        "target_network": copy_network(network if target_network is None else target_network),
        "adam": fresh_adam(network),
        "updates": 0,
    }


def checked_indices(batch: DiscreteBatch, observation_size: int) -> DiscreteBatch:
    """The batch with the shapes and types in its docstring."""
    size = len(batch["observation"])
    action = np.asarray(batch["action"])
    if action.shape != (size,) or not np.issubdtype(action.dtype, np.integer):
        raise ValueError(f"action is {action.dtype} {action.shape}, expected integers {(size,)}")
    column = action[:, None].astype(np.float64)
    return {**checked_batch({**batch, "action": column}, observation_size, 1), "action": action}


def full_update(
    state: DqnState, batch: DiscreteBatch, hyper: Hyper
) -> tuple[DqnState, dict[str, float]]:
    """One update: a gradient step of the network, then the target at the end of its period.

    The count includes this update: with period C the target is updated after update C, 2C,
    ..., toward the network as that update left it. ``q_mean`` is the mean of Q(s, a) at the
    batch's actions before the step. The input state is not modified.
    """
    batch = checked_indices(batch, sizes(state["network"])[0])
    next_q, _ = forward(state["network"], batch["next_observation"])
    next_q_target, _ = forward(state["target_network"], batch["next_observation"])
    value = next_value(next_q, next_q_target, hyper["double"])
    target = td_target(batch["reward"], batch["termination"], value, hyper["gamma"])
    q, cache = forward(state["network"], batch["observation"])
    loss, grad = dqn_loss(q, batch["action"], target)
    gradient = clip_gradient(mlp_backward(cache, grad).network, hyper["max_grad_norm"])
    network, adam = adam_network(state["network"], gradient, state["adam"], hyper["learning_rate"])
    updates = state["updates"] + 1
    due = updates % hyper["target_period"] == 0
    new_state: DqnState = {
        "network": network,
        "target_network": polyak_network(
            state["target_network"], network, hyper["tau"] if due else 0.0
        ),
        "adam": adam,
        "updates": updates,
    }
    metrics = {
        "loss": loss,
        "q_mean": float(q[np.arange(len(q)), batch["action"]].mean()),
        "target_mean": float(target.mean()),
    }
    return new_state, metrics
