"""Train a d3rlpy algorithm on a dataset and print its speed or returns as a JSON object.

Run by ``benchmarks/offline_cpu.py`` (with ``--seconds``), ``benchmarks/offline_learning.py`` and
``benchmarks/evidence.py`` (with ``--updates``) with the interpreter of d3rlpy's environment.
Updates are made by d3rlpy's `fit` with logging silenced.

d3rlpy takes the next observation from the following row. The last row of a truncated episode has
no next observation, so d3rlpy does not learn from it.
"""

import argparse
import json
import time
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import d3rlpy  # type: ignore[import-not-found]
import gymnasium as gym
import numpy as np
import structlog  # type: ignore[import-not-found]
import torch

CONFIGS = {
    "bc": d3rlpy.algos.BCConfig,
    "iql": d3rlpy.algos.IQLConfig,
    "td3_bc": d3rlpy.algos.TD3PlusBCConfig,
    "rebrac": d3rlpy.algos.ReBRACConfig,
    "awac": d3rlpy.algos.AWACConfig,
    "cql": d3rlpy.algos.CQLConfig,
}
DISCRETE_CONFIGS = {
    "bc": d3rlpy.algos.DiscreteBCConfig,
    "cql": d3rlpy.algos.DiscreteCQLConfig,
}
PACKAGES = ["d3rlpy", "torch", "gymnasium", "numpy"]


class Measured(Exception):  # noqa: N818
    """Raised to end `fit` after the timed window."""


class Window:
    """A callback that times the updates after a warm-up, for some seconds."""

    def __init__(self, warmup: int, seconds: float) -> None:
        self.warmup, self.seconds = warmup, seconds
        self.first: tuple[int, float] | None = None
        self.result: dict[str, Any] = {}

    def __call__(self, _algo: Any, _epoch: int, step: int) -> None:
        """Count an update."""
        now = time.perf_counter()
        if self.first is None:
            self.first = (step, now) if step >= self.warmup else None
            return
        steps, seconds = step - self.first[0], now - self.first[1]
        if seconds >= self.seconds:
            self.result = {"speed": steps / seconds, "steps": steps, "seconds": seconds}
            raise Measured


def make_learner(spec: dict[str, Any], bounds: "tuple[Any, Any] | None", device: str) -> Any:
    """Return the learner with the given settings; actions are scaled from the given bounds.

    Without bounds, actions are discrete.
    """

    def encoder(widths: list[int], layer_norm: bool = False) -> Any:
        factory = d3rlpy.models.encoders.VectorEncoderFactory
        return factory(hidden_units=widths, use_layer_norm=layer_norm)

    config = (DISCRETE_CONFIGS if bounds is None else CONFIGS)[spec["algo"]]
    actor = encoder(spec["actor"])
    critic = encoder(spec["critic"], spec["critic_layer_norm"])
    encoders = {
        "encoder_factory": actor,
        "actor_encoder_factory": actor,
        "critic_encoder_factory": critic,
        "value_encoder_factory": critic,
    }
    settings = {k: v for k, v in encoders.items() if k in config.__dataclass_fields__}
    if spec["normalize"]:
        settings["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler(eps=1e-3)
    if bounds is not None and not (np.all(bounds[0] == -1.0) and np.all(bounds[1] == 1.0)):
        settings["action_scaler"] = d3rlpy.preprocessing.MinMaxActionScaler(*bounds)
    return config(**settings, **spec["config"]).create(device=f"{device}:0")


def load(path: str, is_discrete: bool) -> Any:
    """Return the dataset in d3rlpy's format."""
    kind = d3rlpy.ActionSpace.DISCRETE if is_discrete else d3rlpy.ActionSpace.CONTINUOUS
    with np.load(path) as data:
        return d3rlpy.dataset.MDPDataset(
            data["observations"].astype(np.float32),
            data["actions"].astype(np.int32 if is_discrete else np.float32),
            data["rewards"].astype(np.float32),
            data["terminals"].astype(np.float32),
            data["timeouts"].astype(np.float32),
            action_space=kind,
        )


def play(learner: Any, env_id: str, episodes: int, first_seed: int) -> list[float]:
    """Return the returns of the deterministic policy; episode ``i`` has seed ``first_seed + i``."""
    env = gym.make(env_id)
    returns = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=first_seed + episode)
        total, ended = 0.0, False
        while not ended:
            action = learner.predict(np.asarray(obs, dtype=np.float32)[None])[0]
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    """Train and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--spec", required=True, help="JSON, as offline_cases.peer_spec writes it")
    parser.add_argument("--dataset", required=True)
    parser.add_argument(
        "--env", help="environment for the action range and for episodes (default: actions in ±1)"
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--warmup", type=int, default=20, help="updates before the clock starts")
    parser.add_argument("--seconds", type=float, help="duration of the timed window")
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=0)
    parser.add_argument("--episode-seed", type=int, default=0)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if args.threads:
        torch.set_num_threads(args.threads)
    d3rlpy.seed(args.seed)
    space: Any = gym.make(args.env).action_space if args.env else None
    is_discrete = isinstance(space, gym.spaces.Discrete)
    if is_discrete:
        bounds = None
    else:
        bounds = (space.low, space.high) if space else (np.array([-1.0]), np.array([1.0]))
    learner = make_learner(json.loads(args.spec), bounds, args.device)
    window = Window(args.warmup, args.seconds) if args.seconds else None
    began = time.perf_counter()
    with suppress(Measured):
        learner.fit(
            load(args.dataset, is_discrete),
            n_steps=args.updates,
            n_steps_per_epoch=args.updates,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            show_progress=False,
            callback=window,
        )
    facts = {"threads": torch.get_num_threads(), "versions": {p: version(p) for p in PACKAGES}}
    result: dict[str, Any] = (
        window.result if window else {"train_seconds": time.perf_counter() - began}
    )
    if args.episodes:
        result["returns"] = play(learner, args.env, args.episodes, args.episode_seed)
    print(json.dumps(result | facts))


if __name__ == "__main__":
    main()
