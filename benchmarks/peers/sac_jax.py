"""SAC's update in JAX: one `lax.scan` over many updates, sampling included, as a GPU reference.

python benchmarks/peers/sac_jax.py --updates 20000
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

OBS, ACT, HIDDEN, BATCH, ROWS = 17, 6, 256, 256, 100_000
GAMMA, TAU, LR = 0.99, 0.005, 3e-4
LAYERS = {"actor": (OBS, HIDDEN, HIDDEN, 2 * ACT), "critic": (OBS + ACT, HIDDEN, HIDDEN, 1)}


def init(key: Any, widths: Sequence[int], lead: tuple[int, ...] = ()) -> Any:
    """Return weights drawn uniformly from ±1/√fan_in."""
    params = []
    for fan_in, fan_out in pairwise(widths):
        key, one, two = jax.random.split(key, 3)
        bound = 1 / math.sqrt(fan_in)
        weight = jax.random.uniform(one, (*lead, fan_in, fan_out), minval=-bound, maxval=bound)
        bias = jax.random.uniform(two, (*lead, 1, fan_out), minval=-bound, maxval=bound)
        params.append((weight, bias))
    return params


def mlp(params: Any, x: Any) -> Any:
    """Apply a perceptron, or a stack of them."""
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = params[-1]
    return x @ weight + bias


def q_values(critic: Any, obs: Any, actions: Any) -> Any:
    """Return the values of all critics."""
    return mlp(critic, jnp.concatenate([obs, actions], -1)).squeeze(-1)


def sample(actor: Any, obs: Any, noise: Any) -> Any:
    """Sample tanh-Gaussian actions with log-probabilities."""
    mean, log_std = jnp.split(mlp(actor, obs), 2, -1)
    log_std = jnp.clip(log_std, -20, 2)
    pre = mean + jnp.exp(log_std) * noise
    gauss = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - pre - jax.nn.softplus(-2 * pre))
    return jnp.tanh(pre), (gauss - squash).sum(-1)


def adam(params: Any, grads: Any, state: Any) -> Any:
    """Make one step of Adam."""
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    one, two = 1 - 0.9**t, 1 - 0.999**t
    step = lambda p, a, b: p - LR * (a / one) / (jnp.sqrt(b / two) + 1e-8)  # noqa: E731
    return jax.tree.map(step, params, m, v), (m, v, t)


def update(state: Any, key: Any, rows: Any) -> Any:
    """Make one update of SAC, including drawing the batch."""
    key_index, key_next, key_now = jax.random.split(key, 3)
    batch = rows[jax.random.randint(key_index, (BATCH,), 0, ROWS)]
    obs, actions, rewards = batch[:, :OBS], batch[:, OBS : OBS + ACT], batch[:, OBS + ACT]
    next_obs, ended = batch[:, OBS + ACT + 1 : 2 * OBS + ACT + 1], batch[:, -1]
    actor, critic, target, log_alpha, opts = state
    alpha = jnp.exp(log_alpha)
    next_actions, next_log = sample(actor, next_obs, jax.random.normal(key_next, (BATCH, ACT)))
    next_q = q_values(target, next_obs, next_actions).min(0)
    y = rewards + GAMMA * (1 - ended) * (next_q - alpha * next_log)

    def critic_loss(critic: Any) -> Any:
        return ((q_values(critic, obs, actions) - y) ** 2).mean(-1).sum()

    loss_q, grads = jax.value_and_grad(critic_loss)(critic)
    critic, opt_critic = adam(critic, grads, opts[1])
    noise = jax.random.normal(key_now, (BATCH, ACT))

    def actor_loss(actor: Any) -> Any:
        chosen, log_prob = sample(actor, obs, noise)
        return (alpha * log_prob - q_values(critic, obs, chosen).min(0)).mean(), log_prob

    (loss_pi, log_prob), grads = jax.value_and_grad(actor_loss, has_aux=True)(actor)
    actor, opt_actor = adam(actor, grads, opts[0])
    grad = -(log_prob - ACT).mean()
    log_alpha, opt_alpha = adam(log_alpha, grad, opts[2])
    target = jax.tree.map(lambda t, c: t + TAU * (c - t), target, critic)
    opts = (opt_actor, opt_critic, opt_alpha)
    return (actor, critic, target, log_alpha, opts), jnp.stack([loss_q, loss_pi])


def moments(params: Any) -> Any:
    """Return Adam's initial state."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, jax.tree.map(jnp.copy, zeros), 0.0


def main() -> None:
    """Measure and print a JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--block", type=int, default=1_000)
    parser.add_argument("--critics", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1, help="agents that `vmap` trains together")
    parser.add_argument(
        "--wait", action="store_true", help="measure once for each line of standard input"
    )
    args = parser.parse_args()

    def agent(key: Any) -> Any:
        one, two, three = jax.random.split(key, 3)
        actor = init(one, LAYERS["actor"])
        critic = init(two, LAYERS["critic"], (args.critics,))
        log_alpha = jnp.zeros(())
        opts = (moments(actor), moments(critic), moments(log_alpha))
        rows = jax.random.normal(three, (ROWS, 2 * OBS + ACT + 2)).at[:, -1].set(0.0)
        return (actor, critic, jax.tree.map(jnp.copy, critic), log_alpha, opts), rows

    def scan(state: Any, key: Any, rows: Any) -> Any:
        keys = jax.random.split(key, args.block)
        return jax.lax.scan(lambda s, k: update(s, k, rows), state, keys)

    four = jax.random.key(1)
    if args.seeds == 1:
        state, rows = jax.jit(agent)(jax.random.key(0))
        block = jax.jit(scan)
    else:
        state, rows = jax.jit(jax.vmap(agent))(jax.random.split(jax.random.key(0), args.seeds))

        def scan_all(state: Any, key: Any, rows: Any) -> Any:
            return jax.vmap(scan)(state, jax.random.split(key, args.seeds), rows)

        block = jax.jit(scan_all)

    began = time.perf_counter()
    state, losses = block(state, four, rows)
    losses.block_until_ready()
    prepared = time.perf_counter() - began
    turn = 0

    def measure(blocks: int) -> float:
        nonlocal state, turn
        began = time.perf_counter()
        for _ in range(blocks):
            turn += 1
            state, losses = block(state, jax.random.fold_in(four, turn), rows)
        losses.block_until_ready()
        assert jnp.isfinite(losses).all()
        updates: int = args.seeds * blocks * args.block
        return updates / (time.perf_counter() - began)

    if args.wait:
        print(json.dumps({"mode": "lax.scan", "prepared": prepared}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(measure(args.updates // args.block)), flush=True)
        return
    speeds = [measure(args.updates // args.block // 5) for _ in range(5)]
    result = {
        "updates_per_second": sorted(speeds)[2],
        "speeds": speeds,
        "preparation_seconds": prepared,
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
