"""Float64 FlashSAC (arXiv 2604.04539) with hand-derived gradients.

Soft Actor-Critic with categorical critics. Actor and critics are networks with batch normalization
and unit-norm weights; both see s and s' as one batch.
"""

import math
from typing import Any, TypedDict

import numpy as np

from . import return_bins, sac
from .crossq import Normalized, adam, copied, evaluate, joint_inputs, minimum_slopes
from .nn import Array, Batch, Network, adam_step, polyak_network
from .normalized import Rules, copy_running, flash, project

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0


class State(TypedDict):
    """Everything an update reads and writes, and the number of updates so far."""

    actor: Normalized
    critics: list[Normalized]
    targets: list[Network]
    log_alpha: Array
    log_alpha_adam: sac.ScalarAdam
    updates: int


class Hyper(TypedDict):
    """Learning rates with their decay, normalization, bins, and updates per actor update."""

    gamma: float
    tau: float
    lr: float
    decay_steps: int
    decay_final: float
    rules: Rules
    bins: Array
    target_entropy: float
    policy_delay: int


def learning_rate(steps: int, hyper: Hyper) -> float:
    """A cosine from lr to decay_final lr over the optimizer's own steps, rounded to float32."""
    progress = min(1.0, steps / hyper["decay_steps"])
    shape = 0.5 * (1.0 + math.cos(math.pi * progress))
    final = hyper["decay_final"]
    return float(np.float32(hyper["lr"] * (final + (1.0 - final) * shape)))


def step(part: Normalized, grads: Network, hyper: Hyper) -> Normalized:
    """One Adam step at the decayed rate, and the projection of weights and norms."""
    new = adam(part, grads, learning_rate(part["adam"]["t"], hyper), beta1=0.9)
    return {**new, "net": project(new["net"])}


def split_output(output: Array) -> tuple[Array, Array, Array]:
    """Mean, log std mapped into [-10, 2] by a tanh, and the slope of that map; [B, A] each."""
    size = output.shape[1] // 2
    mean, squashed = output[:, :size], np.tanh(output[:, size:])
    half = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
    return mean, LOG_STD_MIN + half * (1.0 + squashed), half * (1.0 - squashed * squashed)


def policy_sample(output: Array, noise: Array) -> tuple[sac.PolicySample, Array]:
    """SAC's sample with these bounds, and the slope of log std."""
    mean, log_std, slope = split_output(output)
    sample = sac.policy_sample(np.concatenate([mean, log_std], axis=1), noise)
    return sample, slope


def target_distribution(state: State, batch: Batch, noise: Array, hyper: Hyper) -> Any:
    """The joint inputs of the critics, and their target distribution [B, M]."""
    rules, bins, alpha = hyper["rules"], hyper["bins"], float(np.exp(state["log_alpha"]))
    following = batch["next_observation"]
    output = evaluate(state["actor"], following, rules, training=False, forward=flash).output
    sample, _ = policy_sample(output, noise)
    x, size = joint_inputs(batch, sample.action), len(batch["reward"])
    logits = []
    for target, critic in zip(state["targets"], state["critics"], strict=True):
        scratch = copy_running(critic["running"])
        done = flash(target, scratch, x, rules, training=True)
        logits.append(done.output[size:])
    chosen = return_bins.lower_distribution(return_bins.softmax(np.stack(logits)), bins)
    discount = hyper["gamma"] * (1.0 - batch["termination"])
    values = batch["reward"][:, None] + discount[:, None] * (
        bins[None] - alpha * sample.log_prob[:, None]
    )
    return x, return_bins.project(chosen, values, bins)


def critic_step(state: State, batch: Batch, noise: Array, hyper: Hyper) -> tuple[Any, Any]:
    """One step of every critic toward the target distribution at (s, a)."""
    x, target = target_distribution(state, batch, noise, hyper)
    size, bins = len(target), hyper["bins"]
    critics = [copied(critic) for critic in state["critics"]]
    passes = [evaluate(c, x, hyper["rules"], training=True, forward=flash) for c in critics]
    logits = np.stack([done.output[:size] for done in passes])
    loss, slopes = return_bins.cross_entropy(logits, target)
    new = []
    for critic, done, slope in zip(critics, passes, slopes, strict=True):
        grad = np.concatenate([slope, np.zeros_like(slope)])
        new.append(step(critic, done.backward(grad)[0], hyper))
    q = return_bins.softmax(logits) @ bins
    return new, sac.critic_metrics(loss, q, target @ bins)


def policy_step(state: State, batch: Batch, noise: Array, hyper: Hyper) -> tuple[Any, Any]:
    """One step of the actor and of the temperature; the critics are in evaluation mode."""
    rules, bins, alpha = hyper["rules"], hyper["bins"], float(np.exp(state["log_alpha"]))
    observation, size = batch["observation"], len(batch["reward"])
    actor = copied(state["actor"])
    both = np.concatenate([observation, batch["next_observation"]])
    at = evaluate(actor, both, rules, training=True, forward=flash)
    sample, slope = policy_sample(at.output[:size], noise)
    x = np.concatenate([observation, sample.action], axis=1)
    passes = [evaluate(c, x, rules, training=False, forward=flash) for c in state["critics"]]
    logits = np.stack([done.output for done in passes])
    q = return_bins.softmax(logits) @ bins
    chosen = minimum_slopes(q)
    grad_action = np.zeros_like(sample.action)
    for done, used, own in zip(passes, chosen, logits, strict=True):
        grad = -used[:, None] / size * return_bins.mean_slopes(own, bins)
        grad_action += done.backward(grad)[1][:, observation.shape[1] :]
    grad = sac.policy_backward(sample, grad_action, np.full(size, alpha / size))
    grad[:, slope.shape[1] :] *= slope
    grads, _ = at.backward(np.concatenate([grad, np.zeros_like(grad)]))
    loss = float((alpha * sample.log_prob - q.min(axis=0)).mean())
    entropy = hyper["target_entropy"]
    log_alpha = float(state["log_alpha"])
    alpha_loss, alpha_grad = sac.temperature_loss(log_alpha, sample.log_prob, entropy, "alpha")
    old = state["log_alpha_adam"]
    rate, t = learning_rate(old["t"], hyper), old["t"] + 1
    moved, m, v = adam_step(state["log_alpha"], np.array(alpha_grad), old["m"], old["v"], t, rate)
    new = {
        "actor": step(actor, grads, hyper),
        "log_alpha": moved,
        "log_alpha_adam": {"m": m, "v": v, "t": t},
    }
    metrics = {
        "actor_loss": loss,
        "alpha_loss": alpha_loss,
        "alpha": alpha,
        "entropy": float(-sample.log_prob.mean()),
    }
    return new, metrics


def full_update(
    state: State, batch: Batch, noise: sac.Noise, hyper: Hyper
) -> tuple[State, dict[str, float]]:
    """One update: in every `policy_delay`-th, actor and temperature; then critics; targets."""
    new: State = {**state, "updates": state["updates"] + 1}
    metrics: dict[str, float] = {}
    if new["updates"] % hyper["policy_delay"] == 0:
        policy, metrics = policy_step(new, batch, noise["action"], hyper)
        new |= policy
    new["critics"], critic_metrics = critic_step(new, batch, noise["next_action"], hyper)
    pairs = zip(state["targets"], new["critics"], strict=True)
    new["targets"] = [polyak_network(old, own["net"], hyper["tau"]) for old, own in pairs]
    return new, metrics | critic_metrics
