"""Show that a packaged config learns: several seeds at once, beside Stable-Baselines3 if asked.

The config is unchanged but for `seed` and `total_timesteps`, and for what `--set` says of a
comparison; the figure is the last checkpoint's. `--finished` takes runs that were trained before,
in pieces, say.

    python -m benchmarks.learning --config sac/pendulum --steps 20000 --out result.json
    python -m benchmarks.learning --config her/point_goal --steps 15000 --set her_ratio=0
    python -m benchmarks.learning --config sac/halfcheetah --steps 100000 --peer-seeds 0 1 2 3
    python -m benchmarks.learning --config td3/pendulum --steps 20000 --at-once 1

Peers are there for sac, ddpg and td3, and for tqc where sb3-contrib is installed beside them.
"""

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.describe import describe
from rl_training import TrainConfig, evaluate_checkpoint
from rl_training.experiment.run_directory import read_config_file, read_run_info
from rl_training.runtime.logging import read_metrics

HERE = Path(__file__).parent
EVALUATION_SEED = 10_000
PEER_KEYS = {
    "learning_rate": "learning_rate",
    "batch_size": "batch_size",
    "gamma": "gamma",
    "tau": "tau",
    "buffer_capacity": "buffer_size",
    "learning_starts": "learning_starts",
    "train_frequency": "train_freq",
    "gradient_updates_per_step": "gradient_steps",
    "policy_delay": "policy_delay",
    "target_noise": "target_policy_noise",
    "target_noise_clip": "target_noise_clip",
    "top_quantiles_to_drop_per_net": "top_quantiles_to_drop_per_net",
}
"""Our names of the settings and Stable-Baselines3's."""
PEER_POLICY_KEYS = {"num_critics": "n_critics", "num_quantiles": "n_quantiles"}
"""The same for what it takes as settings of the policy."""


def pinned(command: list[str], cores: list[int]) -> list[str]:
    """Keep a process to some cores, which also sets its number of threads."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", ",".join(map(str, cores)), *command] if taskset and cores else command


def run(command: list[str], log: Path) -> str:
    """Run a process; its progress goes to a file, its standard output comes back."""
    with log.open("w") as stream:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    return done.stdout


def train_ours(args: argparse.Namespace, seed: int, cores: list[int]) -> dict[str, Any]:
    """One seed through the command line, then its last checkpoint evaluated."""
    command = [sys.executable, "-m", "rl_training", "train", "--config", args.config, "--json"]
    command += [f"seed={seed}", f"total_timesteps={args.steps}", f"output_dir={args.runs}"]
    result = json.loads(run(pinned([*command, *args.set], cores), args.runs / f"ours_{seed}.log"))
    return score_run(args, Path(result["run_dir"])) | {"threads": len(cores) or None}


def score_run(args: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """A finished run's last checkpoint evaluated, with the curve of its training."""
    config = read_config_file(run_dir)
    if not config.total_timesteps == args.steps == read_run_info(run_dir).get("step"):
        raise SystemExit(f"{run_dir} is not a finished run of {args.steps} steps")
    rows = list(read_metrics(run_dir))
    score = evaluate_checkpoint(
        run_dir, env_id=config.env_id, episodes=args.episodes, seed=EVALUATION_SEED
    )
    kept = ("eval_return_mean", "eval_success_rate")
    curve = [[r["step"], *(r[key] for key in kept if key in r)] for r in rows if kept[0] in r]
    success = {"success_rate": score[kept[1]]} if kept[1] in score else {}
    return {
        "seed": config.seed,
        "return_mean": score["eval_return_mean"],
        "return_std": score["eval_return_std"],
        **success,
        "curve": curve,
        "seconds": rows[-1]["time/seconds"],
    }


def peer_settings(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Our settings under the peer's names, those that the algorithm has."""
    settings = {theirs: kwargs[ours] for ours, theirs in PEER_KEYS.items() if ours in kwargs}
    policy = {theirs: kwargs[ours] for ours, theirs in PEER_POLICY_KEYS.items() if ours in kwargs}
    actor = list(kwargs["hidden_sizes"])
    critic = list(kwargs.get("critic_hidden_sizes", actor))
    return settings | {"policy_kwargs": policy | {"net_arch": {"pi": actor, "qf": critic}}}


def train_peer(args: argparse.Namespace, seed: int, cores: list[int]) -> dict[str, Any]:
    """One seed of Stable-Baselines3 with the settings of our config."""
    config = TrainConfig.load(args.config).resolved()
    kwargs = config.algo_kwargs
    settings = peer_settings(kwargs)
    command = [args.peer_python, str(HERE / "peers" / "sb3_learning.py"), "--env", config.env_id]
    command += ["--algo", config.algo]
    command += ["--exploration-noise", str(kwargs.get("exploration_noise", 0.0))]
    command += ["--steps", str(args.steps), "--seed", str(seed), "--settings", json.dumps(settings)]
    command += ["--eval-interval", str(kwargs["eval_interval"]), "--episodes", str(args.episodes)]
    output = run(pinned(command, cores), args.runs / f"sb3_{seed}.log")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    mean = sum(result["returns"]) / len(result["returns"])
    return {"seed": seed, "return_mean": mean, **result}


def summary(runs: list[dict[str, Any]]) -> str:
    """Mean over seeds, with each seed's."""
    means = [run["return_mean"] for run in runs]
    each = ", ".join(f"{run['seed']}: {run['return_mean']:.1f}" for run in runs)
    rates = [f"{run['success_rate']:.0%}" for run in runs if "success_rate" in run]
    success = f"   success {', '.join(rates)}" if rates else ""
    return f"{sum(means) / len(means):10.1f}   ({each}){success}"


def main() -> None:
    """Train all seeds side by side, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--drawn", type=int, default=1, help="seeds drawn at run time")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], help="config keys to change: key=value")
    parser.add_argument("--finished", type=Path, nargs="*", default=[], help="runs to score")
    parser.add_argument("--peer-seeds", type=int, nargs="*", default=[])
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--cores", type=int, default=1, help="cores for each of our runs")
    parser.add_argument("--peer-cores", type=int, default=1)
    parser.add_argument("--first-core", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, default=None, help="where to keep the runs")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    args.runs = args.runs or Path(tempfile.mkdtemp(prefix="learning-"))
    args.runs.mkdir(parents=True, exist_ok=True)
    seeds = args.seeds + [3 + secrets.randbelow(10**6) for _ in range(args.drawn)]
    seeds = [] if args.finished else seeds
    jobs = [(train_ours, seed, args.cores) for seed in seeds]
    jobs += [(train_peer, seed, args.peer_cores) for seed in args.peer_seeds]
    total = os.cpu_count() or 1
    core = args.first_core
    futures = []
    with ThreadPoolExecutor(args.at_once) as pool:
        for work, seed, count in jobs:
            cores = [(core + offset) % total for offset in range(count)]
            core += count
            futures.append(pool.submit(work, args, seed, cores))
    results = [future.result() for future in futures]
    ours = [score_run(args, path) for path in args.finished] + results[: len(seeds)]
    peers = results[len(seeds) :]
    print(f"{args.config}, {args.steps} steps, last checkpoint, {args.episodes} episodes a seed")
    print(f"  ours {summary(ours)}")
    if peers:
        print(f"  SB3  {summary(peers)}")
    if args.out:
        record = {**describe(), "config": args.config, "steps": args.steps, "set": args.set}
        record["episodes"] = args.episodes
        args.out.write_text(json.dumps(record | {"ours": ours, "sb3": peers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
