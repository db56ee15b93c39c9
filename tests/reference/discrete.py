"""Float64 BC, IQL, CQL, AWAC and SAC with discrete actions, with hand-derived gradients.

Policies are categorical: a softmax over the outputs of a network. Critics have one output per
action. ``legal`` masks are [B, K] with 1.0 for each legal action; None means that all are legal.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import awac, iql, sac
from .cql import alpha_prime_of, multiplier_loss
from .dqn import huber
from .nn import (
    Array,
    MlpCache,
    Network,
    adam_critics,
    adam_network,
    adam_step,
    copy_network,
    forward,
    fresh_adam,
    initial_ensemble,
    mlp_backward,
    polyak_networks,
    squared_loss,
)

Indices = npt.NDArray[np.int64]
State = dict[str, Any]
Result = tuple[State, dict[str, float]]


def log_softmax(logits: Array, legal: Array | None = None) -> Array:
    """Log pi [B, K]; minus infinity for illegal actions."""
    allowed = logits if legal is None else np.where(legal == 1.0, logits, -np.inf)
    top = allowed.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.asarray(allowed - top - np.log(np.exp(allowed - top).sum(-1, keepdims=True)))


def expectation(log_probs: Array, values: Array) -> Array:
    """sum_a pi(a) x(a), where an action of probability 0 adds nothing; [B]."""
    pi = np.exp(log_probs)
    return np.asarray(np.where(pi > 0.0, pi * values, 0.0).sum(axis=-1))


def imitation(
    logits: Array, action: Indices, weights: Array, legal: Array | None = None
) -> tuple[float, Array]:
    """-mean_b w log pi(a|s), and its gradient w (pi - 1[a]) / B at the logits."""
    rows = np.arange(len(logits))
    log_probs = log_softmax(logits, legal)
    grad = np.exp(log_probs) * weights[:, None]
    grad[rows, action] -= weights
    return -float((weights * log_probs[rows, action]).mean()), grad / len(rows)


def all_values(critics: Sequence[Network], observation: Array) -> tuple[Array, list[MlpCache]]:
    """Q_i(s, .) as [N, B, K]."""
    passes = [forward(critic, observation) for critic in critics]
    return np.stack([output for output, _ in passes]), [cache for _, cache in passes]


def taken(values: Array, action: Indices) -> Array:
    """The values [..., B] of the given actions, out of [..., B, K]."""
    return np.asarray(values[..., np.arange(len(action)), action])


def spread(grad: Array, action: Indices, size: int) -> Array:
    """Gradients [N, B] at given actions as gradients [N, B, K] at all outputs."""
    full = np.zeros((*grad.shape, size))
    full[:, np.arange(len(action)), action] = grad
    return full


def actor_step(state: State, logits: Array, cache: MlpCache, grad: Array, hyper: Any) -> State:
    """One Adam step of the actor from the gradient at its logits."""
    decay = hyper.get("weight_decay", 0.0)
    grads = mlp_backward(cache, grad).network
    net, adam = adam_network(state["actor"], grads, state["actor_adam"], hyper["actor_lr"], decay)
    return {**state, "actor": net, "actor_adam": adam}


def critics_step(state: State, caches: list[MlpCache], grad: Array, hyper: Any) -> State:
    """One Adam step of every critic from the gradient [N, B, K] at its outputs."""
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad, hyper["critic_lr"]
    )
    return {**state, "critics": critics, "critic_adams": adams}


def targets_step(state: State, hyper: Any) -> State:
    """Polyak averaging of the target critics."""
    averaged = polyak_networks(state["target_critics"], state["critics"], hyper["tau"])
    return {**state, "target_critics": averaged}


def initial_state(
    actor: Network | None = None,
    critics: Sequence[Network] = (),
    target_critics: Sequence[Network] | None = None,
    value: Network | None = None,
    log_alpha: float = 0.0,
) -> State:
    """State before the first update; networks that an algorithm does not have are left out."""
    state: State = {**initial_ensemble(critics, target_critics)}
    for name, net in (("actor", actor), ("value", value)):
        if net is not None:
            state |= {name: copy_network(net), f"{name}_adam": fresh_adam(net)}
    scalar = {"m": np.zeros(()), "v": np.zeros(()), "t": 0}
    state |= {"log_alpha": np.array(log_alpha), "log_alpha_adam": dict(scalar)}
    return state | {"log_multiplier": np.zeros(()), "multiplier_adam": dict(scalar)}


def bellman(batch: Any, next_value: Array, hyper: Any) -> Array:
    """Y = r + gamma (1 - d) V(s'), [B]."""
    return np.asarray(batch["reward"] + hyper["gamma"] * (1.0 - batch["termination"]) * next_value)


# --- Behavior cloning ------------------------------------------------------------


def bc_update(state: State, batch: Any, hyper: Any) -> Result:
    """One step on the cross-entropy."""
    logits, cache = forward(state["actor"], batch["observation"])
    ones = np.ones(len(logits))
    loss, grad = imitation(logits, batch["action"], ones, batch.get("legal"))
    return actor_step(state, logits, cache, grad, hyper), {"actor_loss": loss}


# --- IQL ------------------------------------------------------------------------


def iql_update(state: State, batch: Any, hyper: Any) -> Result:
    """Value, actor, critics, targets; advantages and targets use the updated value."""
    action, observation = batch["action"], batch["observation"]
    target_q = taken(all_values(state["target_critics"], observation)[0], action).min(axis=0)
    v, cache = forward(state["value"], observation)
    v_loss, grad_v = iql.value_loss(v[:, 0], target_q, hyper["expectile"])
    grads = mlp_backward(cache, grad_v[:, None]).network
    value, adam = adam_network(state["value"], grads, state["value_adam"], hyper["value_lr"])
    state = {**state, "value": value, "value_adam": adam}

    new_v = forward(value, observation)[0][:, 0]
    weights = iql.advantage_weights(target_q, new_v, hyper["beta"], hyper["weight_clip"])
    logits, actor_cache = forward(state["actor"], observation)
    pi_loss, grad = imitation(logits, action, weights, batch.get("legal"))
    state = actor_step(state, logits, actor_cache, grad, hyper)

    next_v = forward(value, batch["next_observation"])[0][:, 0]
    target = bellman(batch, next_v, hyper)
    values, caches = all_values(state["critics"], observation)
    q = taken(values, action)
    q_loss, grad_q = squared_loss(q, target)
    state = critics_step(state, caches, spread(grad_q, action, values.shape[2]), hyper)
    metrics = {
        "value_loss": v_loss,
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        "v_mean": float(v.mean()),
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
        "advantage_mean": float((target_q - new_v).mean()),
        "weight_mean": float(weights.mean()),
    }
    return targets_step(state, hyper), metrics


# --- CQL ------------------------------------------------------------------------


def double_q_target(state: State, batch: Any, hyper: Any) -> Array:
    """The action with the best mean over the critics, valued by the minimum of the targets."""
    online, _ = all_values(state["critics"], batch["next_observation"])
    mean = online.mean(axis=0)
    if (legal := batch.get("next_legal")) is not None:
        mean = np.where(legal == 1.0, mean, -np.inf)
    best = mean.argmax(axis=1)
    following, _ = all_values(state["target_critics"], batch["next_observation"])
    return bellman(batch, taken(following, best).min(axis=0), hyper)


def soft_gap(
    values: Array, action: Indices, temperature: float, legal: Array | None = None
) -> tuple[Array, Array]:
    """mean_b(T log sum_a exp(Q_i(s, a) / T) - Q_i(s, a)) as [N], and its gradient [N, B, K]."""
    allowed = values if legal is None else np.where(legal == 1.0, values, -np.inf)
    log_share = log_softmax(allowed / temperature)
    top = allowed.max(axis=-1)
    total = np.exp((allowed - top[..., None]) / temperature).sum(axis=-1)
    soft_maximum = top + temperature * np.log(total)
    rows = len(action)
    grad = np.exp(log_share) / rows
    grad[:, np.arange(rows), action] -= 1.0 / rows
    return (soft_maximum - taken(values, action)).mean(axis=1), grad


def cql_update(state: State, batch: Any, hyper: Any) -> Result:
    """Critics with the multiplier, both with its value before the step, then targets."""
    action, count = batch["action"], len(batch["action"])
    target = double_q_target(state, batch, hyper)
    values, caches = all_values(state["critics"], batch["observation"])
    q = taken(values, action)
    each, slope = huber(q - target[None, :])
    td = float(each.mean(axis=1).sum())
    gaps, gap_grad = soft_gap(values, action, hyper["temperature"], batch.get("legal"))
    weight, threshold = hyper["weight"], hyper["threshold"]
    metrics: dict[str, float] = {}
    penalty, scale = float((weight * gaps).sum()), weight
    if threshold is not None:
        log = float(state["log_multiplier"])
        multiplier, _ = alpha_prime_of(log)
        penalty, scale = (
            float((multiplier * (weight * gaps - threshold)).sum()),
            multiplier * weight,
        )
        loss, gradient = multiplier_loss(log, gaps, weight, threshold)
        adam = state["multiplier_adam"]
        t = adam["t"] + 1
        old = state["log_multiplier"], np.array(gradient), adam["m"], adam["v"], t
        new, m, v = adam_step(*old, hyper["critic_lr"])
        state = {**state, "log_multiplier": new, "multiplier_adam": {"m": m, "v": v, "t": t}}
        metrics = {"alpha_prime": multiplier, "alpha_prime_loss": loss}
    grad = spread(slope / count, action, values.shape[2]) + scale * gap_grad
    state = critics_step(state, caches, grad, hyper)
    metrics |= {
        "critic_loss": td + penalty,
        "bellman_loss": td,
        "gap_mean": float(gaps.mean()),
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }
    return targets_step(state, hyper), metrics


# --- AWAC -----------------------------------------------------------------------


def awac_update(state: State, batch: Any, hyper: Any) -> Result:
    """Critics, actor, targets; both values are exact expectations over the policy."""
    action, observation = batch["action"], batch["observation"]
    log_next = log_softmax(
        forward(state["actor"], batch["next_observation"])[0], batch.get("next_legal")
    )
    following = all_values(state["target_critics"], batch["next_observation"])[0].min(axis=0)
    target = bellman(batch, expectation(log_next, following), hyper)
    values, caches = all_values(state["critics"], observation)
    q = taken(values, action)
    q_loss, grad_q = squared_loss(q, target)
    state = critics_step(state, caches, spread(grad_q, action, values.shape[2]), hyper)

    logits, cache = forward(state["actor"], observation)
    least = all_values(state["critics"], observation)[0].min(axis=0)
    own = expectation(log_softmax(logits, batch.get("legal")), least)
    advantage = taken(least, action) - own
    weights = awac.advantage_weights(
        advantage, hyper["temperature"], hyper["weight_form"], hyper["weight_clip"]
    )
    pi_loss, grad = imitation(logits, action, weights, batch.get("legal"))
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
        "advantage_mean": float(advantage.mean()),
        "weight_mean": float(weights.mean()),
    }
    return targets_step(actor_step(state, logits, cache, grad, hyper), hyper), metrics


# --- SAC ------------------------------------------------------------------------


def soft_value(log_probs: Array, values: Array, alpha: float) -> Array:
    """V(s) = sum_a pi(a|s) (min_i Q_i(s, a) - alpha log pi(a|s)), arXiv 1910.07207 eq. 10."""
    finite = np.where(np.isfinite(log_probs), log_probs, 0.0)
    return expectation(log_probs, values.min(axis=0) - alpha * finite)


def policy_objective(
    logits: Array, values: Array, alpha: float, legal: Array | None = None
) -> tuple[float, Array]:
    """mean_b sum_a pi (alpha log pi - min_i Q_i), eq. 12, and its gradient at the logits.

    With h = alpha log pi - min_i Q_i, it is pi (h - sum_a pi h) / B: the derivative of the
    entropy's logarithm adds the same number to every h.
    """
    log_probs = log_softmax(logits, legal)
    pi = np.exp(log_probs)
    h = alpha * np.where(np.isfinite(log_probs), log_probs, 0.0) - values.min(axis=0)
    own = expectation(log_probs, h)
    return float(own.mean()), pi * (h - own[:, None]) / len(pi)


def sac_update(state: State, batch: Any, hyper: Any) -> Result:
    """Critics, actor, temperature, targets; alpha is that before the update."""
    alpha, action = float(np.exp(state["log_alpha"])), batch["action"]
    log_next = log_softmax(
        forward(state["actor"], batch["next_observation"])[0], batch.get("next_legal")
    )
    following, _ = all_values(state["target_critics"], batch["next_observation"])
    target = bellman(batch, soft_value(log_next, following, alpha), hyper)
    values, caches = all_values(state["critics"], batch["observation"])
    q = taken(values, action)
    q_loss, grad_q = squared_loss(q, target)
    state = critics_step(state, caches, spread(grad_q, action, values.shape[2]), hyper)

    logits, cache = forward(state["actor"], batch["observation"])
    updated, _ = all_values(state["critics"], batch["observation"])
    pi_loss, grad = policy_objective(logits, updated, alpha, batch.get("legal"))
    log_probs = log_softmax(logits, batch.get("legal"))
    finite = np.where(np.isfinite(log_probs), log_probs, 0.0)
    entropy = -expectation(log_probs, finite)
    log = state["log_alpha"]
    loss, slope = sac.temperature_loss(float(log), -entropy, hyper["target_entropy"])
    adam = state["log_alpha_adam"]
    t = adam["t"] + 1
    new, m, v = adam_step(log, np.array(slope), adam["m"], adam["v"], t, hyper["alpha_lr"])
    state = actor_step(state, logits, cache, grad, hyper)
    state |= {"log_alpha": new, "log_alpha_adam": {"m": m, "v": v, "t": t}}
    metrics = {
        "actor_loss": pi_loss,
        "critic_loss": q_loss,
        "alpha_loss": loss,
        "alpha": alpha,
        "entropy": float(entropy.mean()),
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }
    return targets_step(state, hyper), metrics
