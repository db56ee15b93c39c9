"""Show that a packaged config learns, over several seeds, optionally next to Stable-Baselines3.

Only `seed`, `total_timesteps` and the keys given with `--set` differ from the config. Returns are
those of the last checkpoint. `--finished` evaluates existing runs instead of training new ones.

    python -m benchmarks.learning --config sac/pendulum --steps 20000 --out result.json
    python -m benchmarks.learning --config her/point_goal --steps 15000 --set her_ratio=0
    python -m benchmarks.learning --config sac/halfcheetah --steps 100000 --peer-seeds 0 1 2 3
    python -m benchmarks.learning --config td3/pendulum --steps 20000 --at-once 1

`--peer-seeds` supports sac, ddpg and td3, and tqc if sb3-contrib is installed.
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
"""Our settings and their names in Stable-Baselines3."""
PEER_POLICY_KEYS = {"num_critics": "n_critics", "num_quantiles": "n_quantiles"}
"""The same for settings of its policy."""


def pinned(command: list[str], cores: list[int]) -> list[str]:
    """Pin a process to some cores, which also sets its number of threads."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", ",".join(map(str, cores)), *command] if taskset and cores else command


def run(command: list[str], log: Path) -> str:
    """Run a process and return its standard output; progress goes to a file."""
    with log.open("w") as stream:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    return done.stdout


def train_ours(args: argparse.Namespace, seed: int, cores: list[int]) -> dict[str, Any]:
    """Train one seed with the command line and evaluate its last checkpoint."""
    command = [sys.executable, "-m", "rl_training", "train", "--config", args.config, "--json"]
    command += [f"seed={seed}", f"total_timesteps={args.steps}", f"output_dir={args.runs}"]
    result = json.loads(run(pinned([*command, *args.set], cores), args.runs / f"ours_{seed}.log"))
    return score_run(args, Path(result["run_dir"])) | {"threads": len(cores) or None}


def score_run(args: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """Evaluate a finished run's last checkpoint; include its learning curve."""
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
    """Return our settings under the peer's names, as far as the algorithm has them."""
    settings = {theirs: kwargs[ours] for ours, theirs in PEER_KEYS.items() if ours in kwargs}
    policy = {theirs: kwargs[ours] for ours, theirs in PEER_POLICY_KEYS.items() if ours in kwargs}
    actor = list(kwargs["hidden_sizes"])
    critic = list(kwargs.get("critic_hidden_sizes", actor))
    return settings | {"policy_kwargs": policy | {"net_arch": {"pi": actor, "qf": critic}}}


def train_peer(args: argparse.Namespace, seed: int, cores: list[int]) -> dict[str, Any]:
    """Train one seed with Stable-Baselines3 and the settings of our config."""
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
    """Return the mean over seeds and the value of each seed."""
    means = [run["return_mean"] for run in runs]
    each = ", ".join(f"{run['seed']}: {run['return_mean']:.1f}" for run in runs)
    rates = [f"{run['success_rate']:.0%}" for run in runs if "success_rate" in run]
    success = f"   success {', '.join(rates)}" if rates else ""
    return f"{sum(means) / len(means):10.1f}   ({each}){success}"


def main() -> None:
    """Train all seeds in parallel, print a table and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", required=True, help="a packaged config")
    parser.add_argument("--steps", type=int, required=True, help="steps of each run")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds of the runs")
    parser.add_argument("--drawn", type=int, default=1, help="number of seeds to draw at random")
    parser.add_argument("--episodes", type=int, default=10, help="evaluation episodes")
    parser.add_argument("--set", nargs="*", default=[], help="config keys to change: key=value")
    parser.add_argument(
        "--finished", type=Path, nargs="*", default=[], help="existing runs to evaluate"
    )
    parser.add_argument(
        "--peer-seeds", type=int, nargs="*", default=[], help="seeds of Stable-Baselines3"
    )
    parser.add_argument(
        "--peer-python", default=sys.executable, help="interpreter with the peers installed"
    )
    parser.add_argument("--cores", type=int, default=1, help="cores for each of our runs")
    parser.add_argument("--peer-cores", type=int, default=1, help="cores for each run of the peer")
    parser.add_argument("--first-core", type=int, default=0, help="first core to use")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="runs in parallel")
    parser.add_argument("--runs", type=Path, default=None, help="folder for the runs")
    parser.add_argument("--out", type=Path, default=None, help="file to write the record to")
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
    print(f"{args.config}, {args.steps} steps, last checkpoint, {args.episodes} episodes per seed")
    print(f"  ours {summary(ours)}")
    if peers:
        print(f"  SB3  {summary(peers)}")
    if args.out:
        record = {**describe(), "config": args.config, "steps": args.steps, "set": args.set}
        record["episodes"] = args.episodes
        args.out.write_text(json.dumps(record | {"ours": ours, "sb3": peers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
