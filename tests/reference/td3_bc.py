"""Float64 TD3+BC (arXiv 2106.06860) with hand-derived gradients.

TD3 whose actor also imitates the batch's actions; observations are already normalized.
"""

from typing import NamedTuple

import numpy as np

from . import td3
from .bc import imitation_loss
from .nn import (
    Array,
    Batch,
    MlpGrads,
    Network,
    action_gradient,
    critic_values,
    tanh_backward,
    tanh_forward,
)


class Hyper(td3.Hyper):
    """TD3's hyperparameters and the weight alpha of the value term."""

    alpha: float


class ActorLoss(NamedTuple):
    """Value and parameter gradient of the actor loss, with lambda and the imitation loss."""

    loss: float
    grads: MlpGrads
    value_weight: float
    imitation: float


def actor_loss(
    actor: Network, critic: Network, observation: Array, action: Array, alpha: float
) -> ActorLoss:
    """-lambda mean_b Q_1(s, mu(s)) + mean_{b,j} (mu(s)_j - a_j)^2.

    lambda = alpha / mean_b |Q_1(s, mu(s))| is constant: no gradient runs through it. The
    imitation term averages over rows and action axes.
    """
    predicted, cache = tanh_forward(actor, observation)
    q, critic_caches = critic_values([critic], observation, predicted)
    value_weight = alpha / float(np.abs(q).mean())
    imitation, grad = imitation_loss(predicted, action)
    slopes = np.full((1, len(action), 1), -value_weight / len(action))
    grad = grad + action_gradient(critic_caches, slopes, action.shape[1])
    grads = tanh_backward(cache, predicted, grad)
    return ActorLoss(imitation - value_weight * float(q.mean()), grads, value_weight, imitation)


def full_update(
    state: td3.Td3State, batch: Batch, noise: td3.Noise, hyper: Hyper
) -> tuple[td3.Td3State, dict[str, float]]:
    """TD3's delayed update with this actor loss; the state is ``td3.initial_state``'s."""

    def regularized(state: td3.Td3State, batch: Batch) -> ActorLoss:
        at = batch["observation"], batch["action"]
        return actor_loss(state["actor"], state["critics"][0], *at, hyper["alpha"])

    return td3.delayed_update(state, batch, noise, hyper, regularized)
