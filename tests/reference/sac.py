"""Float64 Soft Actor-Critic with hand-derived gradients.

Equation numbers are those of arXiv 1812.05905. Arrays are batch first; per-critic values are
stacked as [critic, batch].
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from .nn import (
    ActorCriticHyper,
    Array,
    Batch,
    Ensemble,
    MlpAdam,
    MlpGrads,
    Network,
    action_gradient,
    adam_critics,
    adam_network,
    adam_step,
    checked,
    checked_batch,
    copy_network,
    critic_outputs,
    forward,
    fresh_adam,
    initial_ensemble,
    mlp_backward,
    normal_log_density,
    polyak_networks,
    sizes,
    squared_loss,
)
from .nn import critic_values as critic_values

LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0
ACTION_CLIP = 1.0 - 1e-5

TemperatureForm = Literal["log_alpha", "alpha"]


class ScalarAdam(TypedDict):
    """Adam moments of log_alpha (0-d arrays) and its step count."""

    m: Array
    v: Array
    t: int


class SacPolicy(TypedDict):
    """Actor and temperature; ``fixed_alpha`` None means alpha is learned."""

    actor: Network
    actor_adam: MlpAdam
    log_alpha: Array
    log_alpha_adam: ScalarAdam
    fixed_alpha: float | None


class SacState(SacPolicy, Ensemble):
    """Everything an update reads and writes."""


class Noise(TypedDict):
    """Standard normal draws [B, A] for the critic step and for the actor step."""

    next_action: Array
    action: Array


class Hyper(ActorCriticHyper):
    """Hyperparameters of the actor-critic, and of its temperature."""

    alpha_lr: float
    target_entropy: float
    temperature_form: TemperatureForm


class PolicySample(NamedTuple):
    """A reparameterized action with what its backward pass needs."""

    action: Array
    log_prob: Array
    std: Array
    noise: Array
    unclipped: Array


class ActorLoss(NamedTuple):
    """Value and parameter gradient of the actor loss, with log pi [B] and Q [N, B]."""

    loss: float
    grads: MlpGrads
    log_prob: Array
    q: Array


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return np.logaddexp(0.0, x)


def log_tanh_slope(u: Array) -> Array:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), the log-Jacobian of appendix C."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))


def split_actor_output(output: Array) -> tuple[Array, Array, Array]:
    """Split [B, 2A] into mean, clipped log_std and the mask (0/1) where log_std is unclipped.

    The slope of the clip is 1 on the closed interval [-20, 2] and 0 outside it.
    """
    size = output.shape[-1] // 2
    mean, raw = output[..., :size], output[..., size:]
    unclipped = ((raw >= LOG_STD_MIN) & (raw <= LOG_STD_MAX)).astype(np.float64)
    return mean, np.clip(raw, LOG_STD_MIN, LOG_STD_MAX), unclipped


def policy_sample(output: Array, noise: Array) -> PolicySample:
    """Eq. 8 and appendix C: u = mean + std eps, a = tanh(u), and log pi(a|s) [B].

    log pi(a|s) = sum_j [log N(u_j; mean_j, std_j) - 2 (log 2 - u_j - softplus(-2 u_j))].
    """
    mean, log_std, unclipped = split_actor_output(output)
    std = np.exp(log_std)
    u = mean + std * noise
    # (u - mean) / std is eps exactly; dividing back would lose it when std is tiny.
    gaussian = -0.5 * noise * noise - log_std - 0.5 * math.log(2.0 * math.pi)
    log_prob = (gaussian - log_tanh_slope(u)).sum(axis=-1)
    return PolicySample(np.tanh(u), log_prob, std, noise, unclipped)


def policy_backward(sample: PolicySample, grad_action: Array, grad_log_prob: Array) -> Array:
    """Gradient at the actor output [B, 2A] (eq. 10), eps held fixed.

    da/du = 1 - a^2; d log pi/du = 2 a; du/dmean = 1; du/dlog_std = std eps; and log pi
    depends on log_std directly with slope -1. The clip's slope multiplies the log_std half.
    """
    action = sample.action
    grad_lp = grad_log_prob[:, None]
    grad_u = grad_action * (1.0 - action * action) + grad_lp * 2.0 * action
    grad_log_std = (grad_u * sample.std * sample.noise - grad_lp) * sample.unclipped
    return np.concatenate([grad_u, grad_log_std], axis=-1)


def log_prob_of_action(mean: Array, log_std: Array, action: Array) -> Array:
    """Appendix C for a given action: log N(atanh a; mean, std) - sum_j log(1 - a_j^2), [B].

    The action is first clipped to +-(1 - 1e-5); ``log_std`` is used as given.
    """
    u = np.arctanh(np.clip(np.asarray(action, dtype=np.float64), -ACTION_CLIP, ACTION_CLIP))
    return np.asarray((normal_log_density(u, mean, log_std) - log_tanh_slope(u)).sum(axis=-1))


def critic_target(
    reward: Array,
    termination: Array,
    next_q_min: Array,
    next_log_prob: Array,
    alpha: float,
    gamma: float,
) -> Array:
    """Eqs. 3 and 5: y = r + gamma (1 - d) (min_i Qbar_i(s', a') - alpha log pi(a'|s')), [B]."""
    return reward + gamma * (1.0 - termination) * (next_q_min - alpha * next_log_prob)


def critic_loss(q: Array, target: Array) -> tuple[float, Array]:
    """sum_i mean_b (Q_i - y)^2 and its gradient 2 (Q_i - y) / B with respect to q [N, B].

    Eq. 5 without its factor 1/2: twice the paper's loss, summed over critics; y is constant.
    """
    return squared_loss(q, target)


def minimum_value(outputs: Array) -> tuple[Array, Array]:
    """min_i Q_i [B] of outputs [N, B, 1], and its slopes [N, B, 1]: 1 for the first minimum."""
    chosen = outputs.argmin(axis=0)[None]
    slopes = (np.arange(len(outputs))[:, None, None] == chosen).astype(np.float64)
    return outputs.min(axis=0)[:, 0], slopes


def mean_value(outputs: Array) -> tuple[Array, Array]:
    """Mean over critics and output units [B] of outputs [N, B, M], and its slopes 1 / (N M)."""
    count = outputs.shape[0] * outputs.shape[2]
    return outputs.mean(axis=(0, 2)), np.full_like(outputs, 1.0 / count)


def actor_loss(
    actor: Network,
    critics: Sequence[Network],
    observation: Array,
    noise: Array,
    alpha: float,
    value: Callable[[Array], tuple[Array, Array]] = minimum_value,
) -> ActorLoss:
    """Eq. 9: mean_b(alpha log pi(a~|s) - min_i Q_i(s, a~)), with eq. 10's gradient.

    The gradient runs through a~ and through log pi; critics and alpha are constants. Where
    critics tie for the minimum, the first of them receives the gradient. ``value`` is the
    minimum, or its replacement in a variant of SAC.
    """
    output, actor_cache = forward(actor, observation)
    sample = policy_sample(output, noise)
    outputs, critic_caches = critic_outputs(critics, observation, sample.action)
    worth, slopes = value(outputs)
    size = len(worth)
    loss = float((alpha * sample.log_prob - worth).mean())
    grad_action = action_gradient(critic_caches, -slopes / size, sample.action.shape[1])
    grad_log_prob = np.full(size, alpha / size)
    grads = mlp_backward(actor_cache, policy_backward(sample, grad_action, grad_log_prob))
    return ActorLoss(loss, grads, sample.log_prob, outputs.mean(axis=2))


def temperature_loss(
    log_alpha: float,
    log_prob: Array,
    target_entropy: float,
    form: TemperatureForm = "log_alpha",
) -> tuple[float, float]:
    """Temperature loss and its gradient with respect to log_alpha; log pi is constant.

    'alpha' is eq. 18, -alpha mean_b(log pi + H), whose gradient with respect to log_alpha is
    the loss itself. 'log_alpha' is -log_alpha mean_b(log pi + H), with gradient
    -mean_b(log pi + H): the same sign and root, without the factor alpha.
    """
    gap = float((log_prob + target_entropy).mean())
    if form == "log_alpha":
        return -log_alpha * gap, -gap
    if form == "alpha":
        loss = -float(np.exp(log_alpha)) * gap
        return loss, loss
    raise ValueError(f"form must be 'log_alpha' or 'alpha', got {form!r}")


def initial_state(
    actor: Network,
    critics: Sequence[Network],
    log_alpha: float = 0.0,
    fixed_alpha: float | None = None,
    target_critics: Sequence[Network] | None = None,
) -> SacState:
    """State before the first update: float64 copies, zero moments, targets equal to critics.

    With ``fixed_alpha`` given, that alpha is used and ``log_alpha`` never changes.
    """
    return {
        **initial_ensemble(critics, target_critics),
        "actor": copy_network(actor),
        "actor_adam": fresh_adam(actor),
        "log_alpha": np.array(log_alpha, dtype=np.float64),
        "log_alpha_adam": {"m": np.zeros(()), "v": np.zeros(()), "t": 0},
        "fixed_alpha": fixed_alpha,
    }


def checked_inputs(state: SacState, batch: Batch, noise: Noise) -> tuple[Batch, Noise]:
    """The batch and the noise in float64; a wrong shape raises an error."""
    observation_size, output_size = sizes(state["actor"])
    batch = checked_batch(batch, observation_size, output_size // 2)
    shape = batch["action"].shape
    return batch, {
        "next_action": checked(noise["next_action"], shape, "noise next_action"),
        "action": checked(noise["action"], shape, "noise action"),
    }


def current_alpha(state: SacPolicy) -> float:
    """exp(log_alpha), or the fixed alpha."""
    fixed = state["fixed_alpha"]
    return float(np.exp(state["log_alpha"])) if fixed is None else fixed


def critic_step(
    state: SacState, batch: Batch, next_noise: Array, alpha: float, hyper: Hyper
) -> tuple[list[Network], list[MlpAdam], dict[str, float]]:
    """Eqs. 5 and 6 with the minimum over target critics: one Adam step of every critic."""
    sample = policy_sample(forward(state["actor"], batch["next_observation"])[0], next_noise)
    next_q, _ = critic_values(state["target_critics"], batch["next_observation"], sample.action)
    target = critic_target(
        batch["reward"],
        batch["termination"],
        next_q.min(axis=0),
        sample.log_prob,
        alpha,
        hyper["gamma"],
    )
    q, caches = critic_values(state["critics"], batch["observation"], batch["action"])
    loss, grad_q = critic_loss(q, target)
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, grad_q[..., None], hyper["critic_lr"]
    )
    return critics, adams, critic_metrics(loss, q, target)


def critic_metrics(loss: float, q: Array, target: Array) -> dict[str, float]:
    """Return the metrics of a critic step."""
    return {
        "critic_loss": loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }


def temperature_step(
    state: SacPolicy, log_prob: Array, hyper: Hyper
) -> tuple[Array, ScalarAdam, float]:
    """Eq. 18: one Adam step on log_alpha; with a fixed alpha, no change and loss 0."""
    log_alpha, adam = state["log_alpha"], state["log_alpha_adam"]
    if state["fixed_alpha"] is not None:
        fixed: ScalarAdam = {"m": adam["m"].copy(), "v": adam["v"].copy(), "t": adam["t"]}
        return log_alpha.copy(), fixed, 0.0
    loss, grad = temperature_loss(
        float(log_alpha), log_prob, hyper["target_entropy"], hyper["temperature_form"]
    )
    t = adam["t"] + 1
    new, m, v = adam_step(log_alpha, np.array(grad), adam["m"], adam["v"], t, hyper["alpha_lr"])
    return new, {"m": m, "v": v, "t": t}, loss


def policy_step(
    state: SacPolicy, policy: ActorLoss, hyper: Hyper
) -> tuple[SacPolicy, dict[str, float]]:
    """One Adam step of the actor and of the temperature, from the actor's loss."""
    actor, actor_adam = adam_network(
        state["actor"], policy.grads.network, state["actor_adam"], hyper["actor_lr"]
    )
    log_alpha, log_alpha_adam, alpha_loss = temperature_step(state, policy.log_prob, hyper)
    new: SacPolicy = {
        "actor": actor,
        "actor_adam": actor_adam,
        "log_alpha": log_alpha,
        "log_alpha_adam": log_alpha_adam,
        "fixed_alpha": state["fixed_alpha"],
    }
    metrics = {
        "actor_loss": policy.loss,
        "alpha_loss": alpha_loss,
        "alpha": current_alpha(state),
        "entropy": float(-policy.log_prob.mean()),
    }
    return new, metrics


def full_update(
    state: SacState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[SacState, dict[str, float]]:
    """One update of algorithm 1: critics, actor, temperature, target critics, in this order.

    (1) Critics: a' from the current actor, minimum over target critics, alpha before its
    update. (2) Actor: the updated critics, held fixed, and the same alpha. (3) Temperature:
    log pi of the actor step, i.e. of the actor before its own update. (4) Polyak averaging of
    the updated critics into the targets. The input state is not modified.
    """
    batch, noise = checked_inputs(state, batch, noise)
    alpha = current_alpha(state)
    critics, critic_adams, metrics = critic_step(state, batch, noise["next_action"], alpha, hyper)
    policy = actor_loss(state["actor"], critics, batch["observation"], noise["action"], alpha)
    new_policy, policy_metrics = policy_step(state, policy, hyper)
    targets = polyak_networks(state["target_critics"], critics, hyper["tau"])
    new_state: SacState = {
        **new_policy,
        "critics": critics,
        "critic_adams": critic_adams,
        "target_critics": targets,
    }
    return new_state, metrics | policy_metrics
