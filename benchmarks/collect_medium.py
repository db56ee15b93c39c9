"""Record the medium and medium-replay datasets: train SAC to a third of an expert's return.

Training stops at the first evaluation that reaches the target (10 episodes, deterministic). Then

- ``ENV-medium.npz`` contains transitions of that policy, with actions sampled as in training;
- ``ENV-medium-replay.npz`` contains the replay buffer at that point, in the order of collection:
  every transition of training, including random play at the start.

Both distinguish terminations from time limits and contain the true next observation at the end of
an episode. A JSON file next to them describes how they were made.

    python -m benchmarks.collect_medium --env HalfCheetah-v5 --out data --seed 0
    python -m benchmarks.collect_medium --env Hopper-v5 --out data --device cuda
    python -m benchmarks.collect_medium --env Pendulum-v1 --target -1200 --steps 1000 --out data
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.describe import describe
from benchmarks.peering import Result, write
from rl_training import TrainConfig, train
from rl_training.algorithms.base import draw_noise
from rl_training.api.datasets import read_replay
from rl_training.data.dataset_writers import (
    Arrays,
    as_arrays,
    check_destination,
    dataset_columns,
    write_arrays,
)
from rl_training.envs import ActionScaler, make_env
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.evaluation import Policy
from rl_training.runtime.recording import record
from rl_training.types import FloatArray

CONFIGS = {
    "HalfCheetah-v5": ("sac/halfcheetah", 12_135.0 / 3),
    "Hopper-v5": ("sac/hopper", 3_234.0 / 3),
    "Pendulum-v1": ("sac/pendulum", -600.0),
}
"""The packaged config and the target: a third of D4RL's expert, less on Pendulum."""


def train_to(args: argparse.Namespace, config_name: str, target: float) -> Path:
    """Train until an evaluation reaches the target; return the run's folder."""
    overrides = [f"seed={args.seed}", f"device={args.device}", f"output_dir={args.out / 'runs'}"]
    overrides += [f"early_stopping={{target_value: {target}}}", f"eval_interval={args.eval}"]
    result = train(TrainConfig.load(config_name, [*overrides, *args.set]))
    if not result.stop_reason.startswith("early_stopping"):
        raise SystemExit(f"{result.run_dir} ended ({result.stop_reason}) before {target:.0f}")
    return Path(result.run_dir)


def sampled_policy(policy: Policy, seed: int) -> Callable[[FloatArray], Any]:
    """Return the policy as it explores in training, with a seed."""
    generator = torch.Generator().manual_seed(seed)
    scaler = ActionScaler(policy.spec)
    algorithm = policy.algorithm

    def choose(obs: FloatArray) -> Any:
        noise = draw_noise(algorithm.act_noise(1), generator)
        row = torch.from_numpy(np.asarray(obs, dtype=np.float32)[None])
        actions = algorithm.act(row, deterministic=False, noise=noise)
        return scaler.to_env(actions.numpy())[0]

    return choose


def medium(checkpoint: SavedRun, steps: int, seed: int) -> Arrays:
    """Return transitions of the checkpoint's policy."""
    config = checkpoint.config
    assert config.env_id is not None, "a run of this recipe has an environment"
    env = make_env(config.env_id, config.parts.env.make_kwargs)
    try:
        return record(env, sampled_policy(checkpoint.load_policy(), seed), steps=steps, seed=seed)
    finally:
        env.close()


def facts(arrays: Arrays) -> Result:
    """Return rows, episodes and returns of a dataset; the last episode may be incomplete."""
    ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"]) + 1
    returns = [float(part.sum()) for part in np.split(arrays["rewards"], ends)[: len(ends)]]
    return {
        "rows": len(arrays["rewards"]),
        "episodes": len(ends),
        "terminations": int(arrays["terminals"].sum()),
        "return_mean": float(np.mean(returns)),
        "return_max": max(returns),
    }


def main() -> None:
    """Train, record and write the datasets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--env", choices=list(CONFIGS), required=True, help="environment to train in"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the datasets")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--target", type=float, help="return to reach instead of the default")
    parser.add_argument(
        "--steps", type=int, default=100_000, help="transitions of the medium dataset"
    )
    parser.add_argument("--eval", type=int, default=5_000, help="steps between evaluations")
    parser.add_argument("--device", default="auto", help="cpu or cuda")
    parser.add_argument(
        "--run", type=Path, help="a run that has reached the target, instead of training"
    )
    parser.add_argument("--set", nargs="*", default=[], help="config keys to change: key=value")
    args = parser.parse_args()
    config_name, target = CONFIGS[args.env]
    target = target if args.target is None else args.target
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.env.split("-")[0].lower()
    files = {name: args.out / f"{stem}-{name}.npz" for name in ("medium", "medium-replay")}
    for file in files.values():
        check_destination(file)
    run_dir = args.run or train_to(args, config_name, target)
    checkpoint = SavedRun.load(run_dir, replay=True)
    arrays = {
        "medium": medium(checkpoint, args.steps, args.seed),
        "medium-replay": as_arrays(dataset_columns(read_replay(checkpoint))),
    }
    report = {**describe(), "env_id": args.env, "seed": args.seed, "target": target}
    report |= {"config": config_name, "training_steps": checkpoint.step}
    report["evaluation"] = checkpoint.state()["trainer"].get("evaluation")
    for name, file in files.items():
        write_arrays(arrays[name], file)
        report[name] = facts(arrays[name])
        print(f"{file}: {report[name]}")
    write(report, args.out / f"{stem}-medium.json")


if __name__ == "__main__":
    main()
