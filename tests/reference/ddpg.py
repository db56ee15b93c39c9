"""Float64 DDPG (arXiv 1509.02971) with hand-derived gradients.

The form that the authors of TD3 compare with: Gaussian exploration, the action enters the
critic's first layer, one Adam for each network without weight decay, Polyak averaging after
every update.
"""

from typing import NamedTuple, TypedDict

import numpy as np

from .nn import (
    ActorCriticHyper,
    Array,
    Batch,
    MlpAdam,
    MlpGrads,
    Network,
    action_gradient,
    adam_critics,
    adam_network,
    checked_batch,
    copy_network,
    critic_values,
    fresh_adam,
    polyak_network,
    sizes,
    squared_loss,
    tanh_backward,
    tanh_forward,
)


class DdpgState(TypedDict):
    """Everything an update reads and writes."""

    actor: Network
    critic: Network
    target_actor: Network
    target_critic: Network
    actor_adam: MlpAdam
    critic_adam: MlpAdam


class ActorLoss(NamedTuple):
    """Value and parameter gradient of the actor loss, with mu(s) [B, A] and Q(s, mu(s)) [B]."""

    loss: float
    grads: MlpGrads
    action: Array
    q: Array


def exploration_action(action: Array, noise: Array, scale: float) -> Array:
    """clip(mu(s) + scale eps, -1, 1) with eps standard normal, in the model's action space."""
    return np.clip(action + scale * noise, -1.0, 1.0)


def td_target(reward: Array, termination: Array, next_q: Array, gamma: float) -> Array:
    """Y = r + gamma (1 - d) Q'(s', a'), [B]."""
    return reward + gamma * (1.0 - termination) * next_q


def critic_loss(q: Array, target: Array) -> tuple[float, Array]:
    """mean_b (Q - y)^2 and its gradient with respect to q [B]; y is constant."""
    loss, grad = squared_loss(q[None], target)
    return loss, grad[0]


def actor_loss(actor: Network, critic: Network, observation: Array) -> ActorLoss:
    """-mean_b Q(s, mu(s)), the deterministic policy gradient; the critic is constant."""
    action, cache = tanh_forward(actor, observation)
    q, critic_caches = critic_values([critic], observation, action)
    slopes = np.full((1, len(action), 1), -1.0 / len(action))
    grad_action = action_gradient(critic_caches, slopes, action.shape[1])
    return ActorLoss(-float(q.mean()), tanh_backward(cache, action, grad_action), action, q[0])


def initial_state(
    actor: Network,
    critic: Network,
    target_actor: Network | None = None,
    target_critic: Network | None = None,
) -> DdpgState:
    """State before the first update: float64 copies, zero moments, targets equal by default."""
    return {
        "actor": copy_network(actor),
        "critic": copy_network(critic),
        "target_actor": copy_network(actor if target_actor is None else target_actor),
        "target_critic": copy_network(critic if target_critic is None else target_critic),
        "actor_adam": fresh_adam(actor),
        "critic_adam": fresh_adam(critic),
    }


def full_update(
    state: DdpgState, batch: Batch, hyper: ActorCriticHyper
) -> tuple[DdpgState, dict[str, float]]:
    """One update of algorithm 1: critic, actor, both targets, in this order.

    (1) Critic: a' from the target actor, scored by the target critic. (2) Actor: against the
    updated critic. (3) Polyak averaging of the updated networks into both targets. The input
    state is not modified.
    """
    batch = checked_batch(batch, *sizes(state["actor"]))
    next_action, _ = tanh_forward(state["target_actor"], batch["next_observation"])
    next_q, _ = critic_values([state["target_critic"]], batch["next_observation"], next_action)
    target = td_target(batch["reward"], batch["termination"], next_q[0], hyper["gamma"])
    q, caches = critic_values([state["critic"]], batch["observation"], batch["action"])
    loss, grad = critic_loss(q[0], target)
    (critic,), (critic_adam,) = adam_critics(
        [state["critic"]],
        [state["critic_adam"]],
        caches,
        grad[None, :, None],
        hyper["critic_lr"],
    )
    policy = actor_loss(state["actor"], critic, batch["observation"])
    actor, actor_adam = adam_network(
        state["actor"], policy.grads.network, state["actor_adam"], hyper["actor_lr"]
    )
    new_state: DdpgState = {
        "actor": actor,
        "critic": critic,
        "target_actor": polyak_network(state["target_actor"], actor, hyper["tau"]),
        "target_critic": polyak_network(state["target_critic"], critic, hyper["tau"]),
        "actor_adam": actor_adam,
        "critic_adam": critic_adam,
    }
    metrics = {
        "critic_loss": loss,
        "actor_loss": policy.loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }
    return new_state, metrics
