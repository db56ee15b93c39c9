"""Float64 CrossQ (arXiv 1902.05605) with hand-derived gradients.

Soft Actor-Critic without target networks. Actor and critics are perceptrons with batch
renormalization; the critics see (s, a) and (s', a') as one batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from . import sac
from .nn import Array, Batch, MlpAdam, Network, adam_step, copy_network, fresh_adam, squared_loss
from .normalized import Pass, Rules, Running, copy_running, perceptron

BETA1 = 0.5

Forward = Callable[..., Pass]


class Normalized(TypedDict):
    """A network with batch normalization: parameters, running statistics, Adam's moments."""

    net: Network
    running: Running
    adam: MlpAdam


class State(TypedDict):
    """Everything an update reads and writes, and the number of updates so far."""

    actor: Normalized
    critics: list[Normalized]
    log_alpha: Array
    log_alpha_adam: sac.ScalarAdam
    updates: int


class Hyper(TypedDict):
    """Learning rate of all optimizers, normalization, and the updates per actor update."""

    gamma: float
    lr: float
    rules: Rules
    target_entropy: float
    policy_delay: int


class Policy(NamedTuple):
    """A policy step's loss, its gradient at the actor's parameters, and log pi [B]."""

    loss: float
    grads: Network
    log_prob: Array


def with_statistics(net: Network, running: Running) -> Normalized:
    """A network before its first step."""
    own = copy_network(net)
    return {"net": own, "running": copy_running(running), "adam": fresh_adam(own)}


def copied(part: Normalized) -> Normalized:
    """A copy whose running statistics are its own."""
    return {**part, "running": copy_running(part["running"])}


def adam(part: Normalized, grads: Network, lr: float, beta1: float) -> Normalized:
    """One Adam step of every array."""
    net, old, t = part["net"], part["adam"], part["adam"]["t"] + 1
    new: Any = {"net": {}, "m": {}, "v": {}}
    for key, arrays in net.items():
        columns = zip(arrays, grads[key], old["m"][key], old["v"][key], strict=True)
        steps = [adam_step(p, g, m, v, t, lr, beta1=beta1) for p, g, m, v in columns]
        for name, values in zip(new, zip(*steps, strict=True), strict=True):
            new[name][key] = list(values)
    return {
        "net": new["net"],
        "running": part["running"],
        "adam": {"m": new["m"], "v": new["v"], "t": t},
    }


def evaluate(
    part: Normalized, x: Array, rules: Rules, *, training: bool, forward: Forward = perceptron
) -> Pass:
    """Outputs of a network; in training, its running statistics move in place."""
    return forward(part["net"], part["running"], x, rules, training=training)


def joint_inputs(batch: Batch, next_action: Array) -> Array:
    """[s, a] above [s', a'], one batch of twice the size."""
    now = np.concatenate([batch["observation"], batch["action"]], axis=1)
    then = np.concatenate([batch["next_observation"], next_action], axis=1)
    return np.concatenate([now, then], axis=0)


def minimum_slopes(q: Array) -> Array:
    """For q [N, B], the slopes of sum_b min_i q_i: 1 for the first minimum of each row."""
    chosen = np.arange(len(q))[:, None] == q.argmin(axis=0)[None]
    return np.asarray(chosen, dtype=np.float64)


def critic_step(state: State, batch: Batch, noise: Array, hyper: Hyper) -> tuple[Any, Any]:
    """The critics' loss at (s, a), toward the soft value that the same pass has at (s', a')."""
    rules, alpha = hyper["rules"], float(np.exp(state["log_alpha"]))
    at = evaluate(state["actor"], batch["next_observation"], rules, training=False)
    sample = sac.policy_sample(at.output, noise)
    critics = [copied(critic) for critic in state["critics"]]
    x = joint_inputs(batch, sample.action)
    passes = [evaluate(critic, x, rules, training=True) for critic in critics]
    size = len(batch["reward"])
    q = np.stack([done.output[:size, 0] for done in passes])
    next_q = np.stack([done.output[size:, 0] for done in passes])
    target = sac.critic_target(
        batch["reward"],
        batch["termination"],
        next_q.min(axis=0),
        sample.log_prob,
        alpha,
        hyper["gamma"],
    )
    loss, slopes = squared_loss(q, target)
    new = []
    for critic, done, slope in zip(critics, passes, slopes, strict=True):
        grad = np.concatenate([slope, np.zeros(size)])[:, None]  # none through the target
        new.append(adam(critic, done.backward(grad)[0], hyper["lr"], BETA1))
    return new, sac.critic_metrics(loss, q, target)


def policy_loss(
    actor: Normalized,
    critics: Sequence[Normalized],
    observation: Array,
    noise: Array,
    alpha: float,
    rules: Rules,
) -> Policy:
    """SAC's actor loss: the actor in training mode, the critics in evaluation mode."""
    at = evaluate(actor, observation, rules, training=True)
    sample = sac.policy_sample(at.output, noise)
    x = np.concatenate([observation, sample.action], axis=1)
    passes = [evaluate(critic, x, rules, training=False) for critic in critics]
    q = np.stack([done.output[:, 0] for done in passes])
    size, width = sample.action.shape
    slopes = minimum_slopes(q)
    grad_action = np.zeros_like(sample.action)
    for done, slope in zip(passes, slopes, strict=True):
        grad_action += done.backward(-slope[:, None] / size)[1][:, -width:]
    grad = sac.policy_backward(sample, grad_action, np.full(size, alpha / size))
    loss = float((alpha * sample.log_prob - q.min(axis=0)).mean())
    return Policy(loss, at.backward(grad)[0], sample.log_prob)


def full_update(
    state: State, batch: Batch, noise: sac.Noise, hyper: Hyper
) -> tuple[State, dict[str, float]]:
    """One update: critics; after every `policy_delay`-th, actor and temperature."""
    alpha = float(np.exp(state["log_alpha"]))
    critics, metrics = critic_step(state, batch, noise["next_action"], hyper)
    new: State = {**state, "critics": critics, "updates": state["updates"] + 1}
    if new["updates"] % hyper["policy_delay"] == 0:
        actor = copied(state["actor"])
        observation, draws, rules = batch["observation"], noise["action"], hyper["rules"]
        policy = policy_loss(actor, critics, observation, draws, alpha, rules)
        new["actor"] = adam(actor, policy.grads, hyper["lr"], BETA1)
        loss, slope = sac.temperature_loss(
            float(state["log_alpha"]), policy.log_prob, hyper["target_entropy"]
        )
        old = state["log_alpha_adam"]
        t = old["t"] + 1
        log_alpha, m, v = adam_step(
            state["log_alpha"], np.array(slope), old["m"], old["v"], t, hyper["lr"]
        )
        new |= {"log_alpha": log_alpha, "log_alpha_adam": {"m": m, "v": v, "t": t}}
        metrics |= {
            "actor_loss": policy.loss,
            "alpha_loss": loss,
            "alpha": alpha,
            "entropy": float(-policy.log_prob.mean()),
        }
    return new, metrics
