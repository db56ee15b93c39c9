"""Train an algorithm of Stable-Baselines3 or SBX and print its returns as a JSON object.

Run by ``benchmarks/learning.py`` and ``benchmarks/evidence.py``.
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import EvalCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
from stable_baselines3.common.noise import NormalActionNoise  # type: ignore[import-not-found]
from stable_baselines3.common.torch_layers import (  # type: ignore[import-not-found]
    BaseFeaturesExtractor,
)
from torch import nn


class GridFeatures(BaseFeaturesExtractor):  # type: ignore[misc]
    """The encoder `grid` of rl_training: 16 filters of 3×3, then 128 features."""

    def __init__(self, observation_space: Any, features_dim: int = 128) -> None:
        super().__init__(observation_space, features_dim)
        height, width, channels = observation_space.shape
        self.maps = nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten())
        size = 16 * (height - 2) * (width - 2)
        self.features = nn.Sequential(nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> Any:
        """Return the features of grids ``[B, height, width, channels]``."""
        return self.features(self.maps(observations.permute(0, 3, 1, 2)))


EXTRACTORS = {"grid": GridFeatures}
HOMES = {"tqc": "sb3_contrib", "crossq": "sbx"}
"""Modules of algorithms that are not in Stable-Baselines3 itself."""
CLASSES = {"crossq": "CrossQ"}
"""Names of learners that are not in capitals."""


def add_learner_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `make_model`, except the seed."""
    parser.add_argument("--env", required=True, help="an id, with its module: module:id")
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--package", help="of the algorithm, such as sbx")
    parser.add_argument("--policy", default="MlpPolicy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frame-stack", type=int, default=1)
    parser.add_argument("--extractor", choices=list(EXTRACTORS))
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument("--exploration-noise", type=float, default=0.0)
    parser.add_argument("--settings", required=True, help="JSON: keyword arguments of the learner")


def make_env(args: argparse.Namespace) -> Any:
    """Return the environment, with stacked frames if there is more than one."""
    env = gym.make(args.env)
    frames = args.frame_stack
    return env if frames == 1 else gym.wrappers.FrameStackObservation(env, frames)


def make_model(args: argparse.Namespace) -> Any:
    """Return the peer's learner with the given settings."""
    package = args.package or HOMES.get(args.algo, "stable_baselines3")
    learner = getattr(import_module(package), CLASSES.get(args.algo, args.algo.upper()))
    settings: dict[str, Any] = json.loads(args.settings)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.extractor:
        settings["policy_kwargs"]["features_extractor_class"] = EXTRACTORS[args.extractor]
    env = make_env(args)
    if args.exploration_noise:
        scale = np.full(env.action_space.shape or (), args.exploration_noise)
        settings["action_noise"] = NormalActionNoise(np.zeros_like(scale), scale)
    return learner(args.policy, env, seed=args.seed, device=args.device, **settings)


def play(model: Any, env: Any, episodes: int, first_seed: int) -> list[float]:
    """Return the returns of the deterministic policy; episode ``i`` has seed ``first_seed + i``."""
    returns = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=first_seed + episode)
        total, ended = 0.0, False
        while not ended:
            action, _ = model.predict(np.asarray(obs), deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    """Train, evaluate the last policy and print the returns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_learner_arguments(parser)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--eval-interval", type=int, required=True, help="0: at the end only")
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument(
        "--episode-seed", type=int, help="of the last evaluation (default: seed + 20000)"
    )
    args = parser.parse_args()
    began = time.perf_counter()
    model = make_model(args)
    watch = args.eval_interval and EvalCallback(
        make_vec_env(partial(make_env, args), seed=args.seed + 10_000),
        log_path=tempfile.mkdtemp(),  # it records a curve only with one
        eval_freq=args.eval_interval,
        n_eval_episodes=args.episodes,
        verbose=1,
    )
    model.learn(total_timesteps=args.steps, callback=watch or None)
    seconds = time.perf_counter() - began
    first = args.seed + 20_000 if args.episode_seed is None else args.episode_seed
    returns = play(model, make_env(args), args.episodes, first)
    names = ["stable-baselines3", "gymnasium", "numpy", "torch"]
    names += ["sbx-rl", "jax"] if "jax" in sys.modules else []
    curve = []
    if watch:
        pairs = zip(watch.evaluations_timesteps, watch.evaluations_results, strict=True)
        curve = [[step, sum(values) / len(values)] for step, values in pairs]
    facts = {
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in names},
    }
    print(json.dumps({"returns": returns, "curve": curve, "seconds": seconds} | facts))


if __name__ == "__main__":
    main()
