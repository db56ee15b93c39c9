"""Float64 Soft Actor-Critic with hand-derived gradients.

Equation numbers are those of arXiv 1812.05905. Arrays are batch first; per-critic values are
stacked as [critic, batch].
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from .nn import Array, MlpCache, MlpGrads, adam_step, mlp_backward, mlp_forward, polyak

LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0
ACTION_CLIP = 1.0 - 1e-5

TemperatureForm = Literal["log_alpha", "alpha"]


class Mlp(TypedDict):
    """Network parameters: ``weights[i]`` [in, out] and ``biases[i]`` [out]."""

    weights: list[Array]
    biases: list[Array]


class MlpAdam(TypedDict):
    """Adam moments of one network, laid out like the network, and its step count."""

    m: Mlp
    v: Mlp
    t: int


class ScalarAdam(TypedDict):
    """Adam moments of log_alpha (0-d arrays) and its step count."""

    m: Array
    v: Array
    t: int


class SacState(TypedDict):
    """Everything an update reads and writes; ``fixed_alpha`` None means alpha is learned."""

    actor: Mlp
    critics: list[Mlp]
    target_critics: list[Mlp]
    actor_adam: MlpAdam
    critic_adams: list[MlpAdam]
    log_alpha: Array
    log_alpha_adam: ScalarAdam
    fixed_alpha: float | None


class Batch(TypedDict):
    """Transitions: [B, O], [B, A], [B], [B, O] and [B] (1.0 where s' is terminal)."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    termination: Array


class Noise(TypedDict):
    """Standard normal draws [B, A] for the critic step and for the actor step."""

    next_action: Array
    action: Array


class Hyper(TypedDict):
    """Hyperparameters; Adam's betas and eps are the defaults of ``adam_step``."""

    gamma: float
    tau: float
    actor_lr: float
    critic_lr: float
    alpha_lr: float
    target_entropy: float
    temperature_form: TemperatureForm


class PolicySample(NamedTuple):
    """A reparametrised action with what its backward pass needs."""

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


def normal_log_density(u: Array, mean: Array, log_std: Array) -> Array:
    """Elementwise log N(u; mean, std) = -((u - mean) / std)^2 / 2 - log std - log(2 pi) / 2."""
    z = (u - mean) * np.exp(-log_std)
    return -0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)


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


def critic_values(
    critics: Sequence[Mlp], observation: Array, action: Array
) -> tuple[Array, list[MlpCache]]:
    """Q_i(s, a) of every critic as [N, B]; a critic's input is [observation, action]."""
    x = np.concatenate([observation, action], axis=-1)
    values: list[Array] = []
    caches: list[MlpCache] = []
    for critic in critics:
        output, cache = mlp_forward(critic["weights"], critic["biases"], x)
        values.append(output[:, 0])
        caches.append(cache)
    return np.stack(values), caches


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
    error = q - target[None, :]
    return float((error * error).mean(axis=1).sum()), 2.0 * error / error.shape[1]


def actor_loss(
    actor: Mlp, critics: Sequence[Mlp], observation: Array, noise: Array, alpha: float
) -> ActorLoss:
    """Eq. 9: mean_b(alpha log pi(a~|s) - min_i Q_i(s, a~)), with eq. 10's gradient.

    The gradient runs through a~ and through log pi; critics and alpha are constants. Where
    critics tie for the minimum, the first of them receives the gradient.
    """
    output, actor_cache = mlp_forward(actor["weights"], actor["biases"], observation)
    sample = policy_sample(output, noise)
    q, critic_caches = critic_values(critics, observation, sample.action)
    batch_size = q.shape[1]
    loss = float((alpha * sample.log_prob - q.min(axis=0)).mean())

    chosen = q.argmin(axis=0)
    grad_action = np.zeros_like(sample.action)
    for i, cache in enumerate(critic_caches):
        grad_q = np.where(chosen == i, -1.0 / batch_size, 0.0)
        grad_action += mlp_backward(cache, grad_q[:, None]).inputs[:, observation.shape[1] :]
    grad_log_prob = np.full(batch_size, alpha / batch_size)
    grads = mlp_backward(actor_cache, policy_backward(sample, grad_action, grad_log_prob))
    return ActorLoss(loss, grads, sample.log_prob, q)


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


def _copy(net: Mlp) -> Mlp:
    return {
        "weights": [np.array(w, dtype=np.float64) for w in net["weights"]],
        "biases": [np.array(b, dtype=np.float64) for b in net["biases"]],
    }


def _zeros(net: Mlp) -> Mlp:
    return {
        "weights": [np.zeros(np.shape(w)) for w in net["weights"]],
        "biases": [np.zeros(np.shape(b)) for b in net["biases"]],
    }


def initial_state(
    actor: Mlp,
    critics: Sequence[Mlp],
    log_alpha: float = 0.0,
    fixed_alpha: float | None = None,
    target_critics: Sequence[Mlp] | None = None,
) -> SacState:
    """State before the first update: float64 copies, zero moments, targets equal to critics.

    With ``fixed_alpha`` given, that alpha is used and ``log_alpha`` never changes.
    """
    targets = critics if target_critics is None else target_critics
    return {
        "actor": _copy(actor),
        "critics": [_copy(c) for c in critics],
        "target_critics": [_copy(c) for c in targets],
        "actor_adam": {"m": _zeros(actor), "v": _zeros(actor), "t": 0},
        "critic_adams": [{"m": _zeros(c), "v": _zeros(c), "t": 0} for c in critics],
        "log_alpha": np.array(log_alpha, dtype=np.float64),
        "log_alpha_adam": {"m": np.zeros(()), "v": np.zeros(()), "t": 0},
        "fixed_alpha": fixed_alpha,
    }


def _adam_list(
    params: list[Array], grads: list[Array], m: list[Array], v: list[Array], t: int, lr: float
) -> tuple[list[Array], list[Array], list[Array]]:
    steps = [adam_step(*pgmv, t, lr) for pgmv in zip(params, grads, m, v, strict=True)]
    return [s[0] for s in steps], [s[1] for s in steps], [s[2] for s in steps]


def adam_network(net: Mlp, grads: MlpGrads, adam: MlpAdam, lr: float) -> tuple[Mlp, MlpAdam]:
    """One Adam step (arXiv 1412.6980, algorithm 1) of every weight and bias of a network."""
    t = adam["t"] + 1
    m, v = adam["m"], adam["v"]
    weights, m_weights, v_weights = _adam_list(
        net["weights"], grads.weights, m["weights"], v["weights"], t, lr
    )
    biases, m_biases, v_biases = _adam_list(
        net["biases"], grads.biases, m["biases"], v["biases"], t, lr
    )
    return {"weights": weights, "biases": biases}, {
        "m": {"weights": m_weights, "biases": m_biases},
        "v": {"weights": v_weights, "biases": v_biases},
        "t": t,
    }


def polyak_network(target: Mlp, online: Mlp, tau: float) -> Mlp:
    """Algorithm 1: Polyak averaging of every weight and bias."""
    weights = zip(target["weights"], online["weights"], strict=True)
    biases = zip(target["biases"], online["biases"], strict=True)
    return {
        "weights": [polyak(old, new, tau) for old, new in weights],
        "biases": [polyak(old, new, tau) for old, new in biases],
    }


def _checked(values: Array, shape: tuple[int, ...], name: str) -> Array:
    """Return float64 ``values``; refuse a shape that would broadcast into a wrong result."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    return array


def _checked_inputs(state: SacState, batch: Batch, noise: Noise) -> tuple[Batch, Noise]:
    actor = state["actor"]
    size = len(batch["observation"])
    observation = (size, np.shape(actor["weights"][0])[0])
    action = (size, np.shape(actor["weights"][-1])[1] // 2)
    checked_batch: Batch = {
        "observation": _checked(batch["observation"], observation, "observation"),
        "action": _checked(batch["action"], action, "action"),
        "reward": _checked(batch["reward"], (size,), "reward"),
        "next_observation": _checked(batch["next_observation"], observation, "next_observation"),
        "termination": _checked(batch["termination"], (size,), "termination"),
    }
    checked_noise: Noise = {
        "next_action": _checked(noise["next_action"], action, "noise next_action"),
        "action": _checked(noise["action"], action, "noise action"),
    }
    return checked_batch, checked_noise


def critic_step(
    state: SacState, batch: Batch, next_noise: Array, alpha: float, hyper: Hyper
) -> tuple[list[Mlp], list[MlpAdam], dict[str, float]]:
    """Eqs. 5 and 6 with the minimum over target critics: one Adam step of every critic."""
    actor, next_observation = state["actor"], batch["next_observation"]
    output, _ = mlp_forward(actor["weights"], actor["biases"], next_observation)
    sample = policy_sample(output, next_noise)
    next_q, _ = critic_values(state["target_critics"], next_observation, sample.action)
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
    steps = [
        adam_network(critic, mlp_backward(cache, grad[:, None]), adam, hyper["critic_lr"])
        for critic, cache, grad, adam in zip(
            state["critics"], caches, grad_q, state["critic_adams"], strict=True
        )
    ]
    metrics = {
        "critic_loss": loss,
        "q_mean": float(q.mean()),
        "target_mean": float(target.mean()),
    }
    return [s[0] for s in steps], [s[1] for s in steps], metrics


def temperature_step(
    state: SacState, log_prob: Array, hyper: Hyper
) -> tuple[Array, ScalarAdam, float]:
    """Eq. 18: one Adam step on log_alpha; nothing moves, and the loss is 0, if alpha is fixed."""
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


def full_update(
    state: SacState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[SacState, dict[str, float]]:
    """One update of algorithm 1: critics, actor, temperature, target critics, in this order.

    (1) Critics: a' from the current actor, minimum over target critics, alpha before its
    update. (2) Actor: the updated critics, held fixed, and the same alpha. (3) Temperature:
    log pi of the actor step, i.e. of the actor before its own update. (4) Polyak averaging of
    the updated critics into the targets. The input state is not modified.
    """
    batch, noise = _checked_inputs(state, batch, noise)
    fixed_alpha = state["fixed_alpha"]
    alpha = float(np.exp(state["log_alpha"])) if fixed_alpha is None else fixed_alpha

    critics, critic_adams, metrics = critic_step(state, batch, noise["next_action"], alpha, hyper)
    policy = actor_loss(state["actor"], critics, batch["observation"], noise["action"], alpha)
    actor, actor_adam = adam_network(
        state["actor"], policy.grads, state["actor_adam"], hyper["actor_lr"]
    )
    log_alpha, log_alpha_adam, alpha_loss = temperature_step(state, policy.log_prob, hyper)
    pairs = zip(state["target_critics"], critics, strict=True)
    new_state: SacState = {
        "actor": actor,
        "critics": critics,
        "target_critics": [polyak_network(old, new, hyper["tau"]) for old, new in pairs],
        "actor_adam": actor_adam,
        "critic_adams": critic_adams,
        "log_alpha": log_alpha,
        "log_alpha_adam": log_alpha_adam,
        "fixed_alpha": fixed_alpha,
    }
    metrics |= {
        "actor_loss": policy.loss,
        "alpha_loss": alpha_loss,
        "alpha": alpha,
        "entropy": float(-policy.log_prob.mean()),
    }
    return new_state, metrics
