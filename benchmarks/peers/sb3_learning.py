"""Train a Stable-Baselines3 algorithm with our settings and print its returns as a JSON object.

Run by ``benchmarks/learning.py``.
"""

import argparse
import json
import tempfile
from importlib import import_module
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import EvalCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
from stable_baselines3.common.evaluation import (  # type: ignore[import-not-found]
    evaluate_policy,
)
from stable_baselines3.common.noise import NormalActionNoise  # type: ignore[import-not-found]

HOMES = {"tqc": "sb3_contrib"}
"""Modules of algorithms that are not in Stable-Baselines3 itself."""


def make_model(args: argparse.Namespace) -> Any:
    """Return the peer's learner with the given settings."""
    package = HOMES.get(args.algo, "stable_baselines3")
    learner = getattr(import_module(package), args.algo.upper())
    settings: dict[str, Any] = json.loads(args.settings)
    if args.exploration_noise:
        space = gym.make(args.env).action_space
        scale = np.full(space.shape or (), args.exploration_noise)
        settings["action_noise"] = NormalActionNoise(np.zeros_like(scale), scale)
    return learner("MlpPolicy", args.env, seed=args.seed, device="cpu", **settings)


def main() -> None:
    """Train, evaluate the last policy and print the returns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--env", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--eval-interval", type=int, required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--exploration-noise", type=float, default=0.0)
    parser.add_argument("--settings", required=True, help="JSON: keyword arguments of the learner")
    args = parser.parse_args()
    model = make_model(args)
    watch = EvalCallback(
        make_vec_env(args.env, seed=args.seed + 10_000),
        log_path=tempfile.mkdtemp(),  # it records a curve only with one
        eval_freq=args.eval_interval,
        n_eval_episodes=args.episodes,
        verbose=1,
    )
    model.learn(total_timesteps=args.steps, callback=watch)
    final = make_vec_env(args.env, seed=args.seed + 20_000)
    returns, _ = evaluate_policy(
        model, final, n_eval_episodes=args.episodes, return_episode_rewards=True
    )
    versions = {name: version(name) for name in ("stable-baselines3", "gymnasium", "mujoco")}
    print(
        json.dumps(
            {
                "returns": returns,
                "curve": [
                    [step, sum(values) / len(values)]
                    for step, values in zip(
                        watch.evaluations_timesteps, watch.evaluations_results, strict=True
                    )
                ],
                "threads": torch.get_num_threads(),
                "versions": versions | {"torch": torch.__version__},
            }
        )
    )


if __name__ == "__main__":
    main()
