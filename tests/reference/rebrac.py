"""Float64 ReBRAC (arXiv 2305.09836) with hand-derived gradients.

TD3 with the squared distance from the data's actions as a penalty, of one weight in the actor's
loss and another in the critics' target. In the critics, LayerNorm follows the ReLU of every hidden
layer ("scales_after", "shifts_after").
"""

from typing import NamedTuple

import numpy as np

from . import nn, td3
from .nn import Array, MlpGrads, Network


class Hyper(td3.Hyper):
    """TD3's hyperparameters and the weights beta_1 and beta_2 of the penalties."""

    actor_penalty: float
    critic_penalty: float


class Batch(nn.Batch):
    """Transitions, the data's action [B, A] at s', and a mask [B], 1.0 if there is one."""

    next_action: Array
    next_action_mask: Array


class ActorLoss(NamedTuple):
    """Value and parameter gradient of the actor loss, with lambda and the distance."""

    loss: float
    grads: MlpGrads
    value_weight: float
    imitation: float


def squared_distance(first: Array, second: Array) -> Array:
    """sum_j (x_j - y_j)^2, [B]: a sum over action dimensions, not a mean."""
    error = first - second
    return np.asarray((error * error).sum(axis=1))


def actor_loss(
    actor: Network, critics: list[Network], observation: Array, action: Array, beta: float
) -> ActorLoss:
    """The loss beta mean_b |mu(s) - a|^2 - lambda mean_b min_i Q_i(s, mu(s)).

    lambda = 1 / mean_b |min_i Q_i(s, mu(s))| is constant: no gradient runs through it. Each row's
    gradient is the one of the critic with the minimum.
    """
    size = len(action)
    predicted, cache = nn.tanh_forward(actor, observation)
    q, critic_caches = nn.critic_values(critics, observation, predicted)  # [N, B]
    least = q.min(axis=0)
    value_weight = 1.0 / float(np.abs(least).mean())
    imitation = float(squared_distance(predicted, action).mean())
    chosen = np.arange(len(critics))[:, None] == q.argmin(axis=0)[None, :]
    slopes = -value_weight / size * chosen[:, :, None].astype(np.float64)
    grad = beta * 2.0 * (predicted - action) / size
    grad = grad + nn.action_gradient(critic_caches, slopes, action.shape[1])
    loss = beta * imitation - value_weight * float(least.mean())
    grads = nn.tanh_backward(cache, predicted, grad)
    return ActorLoss(loss, grads, value_weight, imitation)


def full_update(
    state: td3.Td3State, batch: Batch, noise: td3.Noise, hyper: Hyper
) -> tuple[td3.Td3State, dict[str, float]]:
    """TD3's delayed update with both penalties; the state is ``td3.initial_state``'s.

    The target's penalty compares the smoothed action, the one that is scored, with the data's next
    action, and is 0 if the data has none.
    """
    size, actions = batch["action"].shape
    following = nn.checked(batch["next_action"], (size, actions), "next_action")
    mask = nn.checked(batch["next_action_mask"], (size,), "next_action_mask")

    def penalized(state: td3.Td3State, batch: nn.Batch) -> ActorLoss:
        at = batch["observation"], batch["action"]
        return actor_loss(state["actor"], state["critics"], *at, hyper["actor_penalty"])

    def penalty(next_action: Array) -> Array:
        return hyper["critic_penalty"] * mask * squared_distance(next_action, following)

    return td3.delayed_update(state, batch, noise, hyper, penalized, penalty)
