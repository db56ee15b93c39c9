"""Run a study of `benchmarks/studies` next to a peer, and write the record of both.

The peer trains the same number of steps with the same seeds. The last checkpoint of each run plays
20 episodes from the same initial states, which are also those of random play. Results are kept in
the folder of the study, so that the same command continues a benchmark that was interrupted.

    python -m benchmarks.evidence dqn_cartpole --out benchmarks/results/dqn_cartpole_seeds.json

Peers need an interpreter with Stable-Baselines3 (or SBX, or d3rlpy) and the tasks' packages; by
default, it is this one, or else the environment of `benchmarks.peering`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.console import Console

import benchmarks.tasks
from benchmarks.describe import ROOT, describe
from benchmarks.peering import D3RLPY, ONLINE, PEERS, Result, peer_python, run_json, write
from rl_training import Study, TrainConfig, evaluate_checkpoint
from rl_training.runtime.logging import read_metrics
from rl_training.study.index import StudyIndex
from rl_training.study.planning import PlannedGroup, StudyPlan
from rl_training.study.records import INDEX_FILE

STUDIES = ROOT / "benchmarks" / "studies"
TASKS = benchmarks.tasks.__name__
EVALUATION_SEED = 10_000
EPISODES = 20


@dataclass(frozen=True)
class Peer:
    """An algorithm of Stable-Baselines3, SBX or d3rlpy, and its settings."""

    algo: str
    settings: dict[str, Any]
    options: list[str] = field(default_factory=list)
    """Further arguments of `peers/sb3_learning.py`."""
    library: str = "stable_baselines3"

    def command(self, config: TrainConfig) -> list[str]:
        """Return the program and what it trains, without the seed."""
        budget = str(config.total_timesteps)
        if self.library == "d3rlpy":
            dataset = str(config.parts.data.dataset_path)
            command = [str(PEERS / "d3rlpy_peer.py"), "--spec", json.dumps(self.settings)]
            return [
                *command,
                "--dataset",
                dataset,
                "--env",
                str(config.env_id),
                "--updates",
                budget,
            ]
        command = [str(PEERS / "sb3_learning.py"), "--env", f"{TASKS}:{config.env_id}"]
        command += ["--algo", self.algo, "--settings", json.dumps(self.settings), *self.options]
        return [*command, "--steps", budget, "--eval-interval", "0"]


def d3rlpy_peer(algo: str, **settings: Any) -> Peer:
    """Return a peer with the settings of `studies/offline_cartpole.yaml`."""
    widths = {"actor": [256, 256], "critic": [256, 256], "critic_layer_norm": False}
    config = {"batch_size": 256, "learning_rate": 3e-4, **settings}
    spec = {"algo": algo, "config": config, **widths, "normalize": False}
    return Peer(algo, spec, library="d3rlpy")


ZOO_CARTPOLE = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
"""Settings of DQN on CartPole-v1 in RL Baselines3 Zoo."""
SMALL_GRID = {
    "learning_rate": 2.5e-4,
    "batch_size": 32,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 1_000,  # in steps
    "train_freq": 4,
    "gradient_steps": 1,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.05,
    "max_grad_norm": 10.0,
    "policy_kwargs": {"net_arch": []},
}
"""The settings of `studies/minatar.yaml` in the words of Stable-Baselines3."""
SBX_CROSSQ = {
    "learning_rate": 1e-3,
    "buffer_size": 1_000_000,
    "learning_starts": 5_000,
    "batch_size": 256,
    "policy_delay": 3,
    "policy_kwargs": {
        "net_arch": {"pi": [256, 256], "qf": [256, 256]},
        "renorm_warmup_steps": 10_000,
    },
}
"""The settings of `studies/crossq_small.yaml` in the words of SBX."""
SBX_SIMBA = {
    "learning_rate": 3e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 5_000,
    "batch_size": 256,
    "policy_kwargs": {"net_arch": {"pi": [64], "qf": [128, 128]}},
}
"""The settings of `studies/simba_small.yaml` in the words of SBX."""
PEERS_OF = {
    "crossq_small": {"crossq": Peer("crossq", SBX_CROSSQ, library="sbx")},
    "simba_small": {
        "sac": Peer(
            "sac", SBX_SIMBA, ["--package", "sbx", "--policy", "SimbaPolicy"], library="sbx"
        )
    },
    "dqn_cartpole": {"dqn": Peer("dqn", ZOO_CARTPOLE)},
    "minatar": {"dqn": Peer("dqn", SMALL_GRID, ["--extractor", "grid"])},
    "offline_cartpole": {
        "bc": d3rlpy_peer("bc", beta=0.0),
        "cql": d3rlpy_peer("cql", alpha=1.0, n_critics=2, target_update_interval=200),
    },
}
"""Peers of each study, by our algorithm. d3rlpy has no IQL for discrete actions."""


@dataclass(frozen=True)
class Job:
    """A piece of work whose result is kept in a file of the study's folder."""

    path: Path
    work: Callable[[], Result]

    def __call__(self) -> None:
        """Do the work, unless it is done."""
        if not self.path.exists():
            made = {key: describe()[key] for key in ("commit", "date", "machine")}
            unfinished = self.path.with_suffix(".tmp")
            write(self.work() | made, unfinished)
            unfinished.replace(self.path)


# --- Work that other processes do -------------------------------------------------------


def evaluate_run(path: Path, seed: int) -> Result:
    """Let a finished run's last checkpoint play."""
    torch.set_num_threads(1)
    rows = list(read_metrics(path))
    score = evaluate_checkpoint(path, episodes=EPISODES, seed=EVALUATION_SEED)
    key = "eval_return_mean"
    return {
        "seed": seed,
        "step": score["step"],
        "return_mean": score[key],
        "return_std": score["eval_return_std"],
        "curve": [[row["step"], row[key]] for row in rows if key in row],
        "seconds": rows[-1]["time/seconds"],
    }


def play_randomly(env_id: str) -> Result:
    """Return the returns of uniformly random actions from the same initial states."""
    env, returns = gym.make(env_id), []
    for episode in range(EPISODES):
        env.reset(seed=EVALUATION_SEED + episode)
        env.action_space.seed(episode)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns))}


def train_peer(python: str, peer: Peer, config: TrainConfig, seed: int, device: str) -> Result:
    """Train and evaluate one seed of the peer, as long as our run."""
    command = [python, *peer.command(config), "--seed", str(seed), "--threads", "1"]
    command += ["--episodes", str(EPISODES), "--device", device]
    result = run_json([*command, "--episode-seed", str(EVALUATION_SEED)], device)
    returns = result["returns"]
    means = {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns))}
    return {"seed": seed, **means, **result}


# --- The record -------------------------------------------------------------------------


def file_of(folder: Path, side: str, group: PlannedGroup, seed: int | None = None) -> Path:
    """Return where a result is kept; random play has no label and no seed."""
    parts = [side, group.task] if seed is None else [side, group.label, group.task, str(seed)]
    return folder / "results" / f"{'-'.join(parts).replace('/', '_')}.json"


def summary(runs: list[Result]) -> Result:
    """Return the mean over seeds, their spread, the lowest seed and the runs."""
    means = [run["return_mean"] for run in runs]
    return {
        "mean": float(np.mean(means)),
        "std_of_seeds": float(np.std(means, ddof=1)) if len(means) > 1 else None,
        "lowest": min(means),
        "runs": sorted(runs, key=lambda run: run["seed"]),
    }


def assemble(name: str, folder: Path, plan: StudyPlan) -> Result:
    """Return the record of all results so far."""
    groups = []
    for group in plan.groups:
        entry: Result = {"label": group.label, "task": group.task, "config": group.settings}
        peer = PEERS_OF.get(name, {}).get(group.config.algo)
        entry |= {"peer_library": peer.library, "peer_settings": peer.settings} if peer else {}
        for side in ("ours", "peer"):
            files = [file_of(folder, side, group, seed) for seed in group.seeds]
            found = [json.loads(file.read_text()) for file in files if file.exists()]
            entry |= {side: summary(found)} if found else {}
        random = file_of(folder, "random", group)
        entry |= {"random": json.loads(random.read_text())} if random.exists() else {}
        groups.append(entry)
    facts = {"study": name, "episodes": EPISODES, "evaluation_seed": EVALUATION_SEED}
    command = f"python -m benchmarks.evidence {name}"  # the other options do not change results
    return {**describe(), "command": command, **facts, "groups": groups}


def unpack(record: Result, folder: Path, plan: StudyPlan) -> None:
    """Keep the peers' results of an earlier record, so that they are not trained again."""
    runs = {(g["label"], g["task"]): g.get("peer", {}).get("runs", []) for g in record["groups"]}
    for group in plan.groups:
        for run in runs.get((group.label, group.task), []):
            path = file_of(folder, "peer", group, run["seed"])
            if not path.exists():
                write({"machine": record["machine"], **run}, path)


def show(record: Result, console: Console) -> None:
    """Print a line for each side of each group."""
    for group in record["groups"]:
        for side in ("ours", "peer"):
            if side in group:
                found = group[side]
                each = ", ".join(f"{run['return_mean']:.1f}" for run in found["runs"])
                words = f"{group['label']} on {group['task']}, {side}: {found['mean']:.1f}"
                console.print(f"{words}, lowest {found['lowest']:.1f} ({each})", soft_wrap=True)
        if "random" in group:
            console.print(f"  random play: {group['random']['return_mean']:.1f}")


def ended_runs(folder: Path) -> dict[tuple[str, str, int], Path]:
    """Return the folders of our finished runs."""
    if not (folder / "study" / INDEX_FILE).exists():
        return {}
    index = StudyIndex.open(folder / "study")
    return {(r.label, r.task, r.seed): r.path for r in index if r.status.has_ended}


def jobs(
    args: argparse.Namespace, folder: Path, plan: StudyPlan, python: str | None
) -> Iterator[tuple[str, Job]]:
    """Yield the work other than our training; a run plays once it has ended."""
    ended = ended_runs(folder)
    for group in plan.groups:
        peer = PEERS_OF.get(args.study, {}).get(group.config.algo)
        env_id = str(group.config.env_id)
        yield "random", Job(file_of(folder, "random", group), partial(play_randomly, env_id))
        for seed in group.seeds:
            path = ended.get((group.label, group.task, seed))
            if path is not None:
                work = partial(evaluate_run, path, seed)
                yield "ours", Job(file_of(folder, "ours", group, seed), work)
            if peer is not None and python is not None:
                work = partial(train_peer, python, peer, group.config, seed, args.device)
                yield "peer", Job(file_of(folder, "peer", group, seed), work)


def start_study(args: argparse.Namespace, folder: Path) -> "subprocess.Popen[bytes]":
    """Start or continue our side."""
    command = [sys.executable, "-m", "rl_training", "--import", TASKS, "study", "run"]
    command += [str(STUDIES / f"{args.study}.yaml"), "--out", str(folder / "study")]
    command += ["--cores", str(args.cores)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def interpreter(args: argparse.Namespace, console: Console) -> str | None:
    """Return the interpreter of the peers, if there are any to run."""
    libraries = {peer.library for peer in PEERS_OF.get(args.study, {}).values()}
    if args.only == "ours" or not libraries:
        return None
    if args.peer_python or all(map(find_spec, libraries)):
        return args.peer_python or sys.executable
    return peer_python(console, D3RLPY if "d3rlpy" in libraries else ONLINE)


def main() -> None:
    """Run both sides, write the record after every result, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    names = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    parser.add_argument("study", choices=names, help="a file of benchmarks/studies")
    parser.add_argument("--only", choices=["ours", "peer"], help="one side")
    parser.add_argument("--cores", type=int, default=1, help="cores for our runs")
    parser.add_argument("--peer-cores", type=int, default=1, help="runs of the peer at once")
    parser.add_argument("--peer-python", help="interpreter with the peers installed")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of the peer")
    parser.add_argument("--runs", type=Path, help="folder to continue (default: studies/NAME)")
    parser.add_argument(
        "--continue",
        type=Path,
        dest="continued",
        metavar="FILE.json",
        help="an earlier record, whose runs of the peer are kept",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="file to write the record to")
    args = parser.parse_args()
    console = Console()
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    folder = (args.runs or Path("studies") / args.study).resolve()
    plan = Study.load(STUDIES / f"{args.study}.yaml").plan()
    if args.continued:
        unpack(json.loads(args.continued.read_text(encoding="utf-8")), folder, plan)
    python = interpreter(args, console)
    study = start_study(args, folder) if args.only != "peer" else None
    started: dict[Path, Future[None]] = {}
    players = ProcessPoolExecutor(max(1, args.cores // 2), mp_context=get_context("spawn"))
    peers = ThreadPoolExecutor(args.peer_cores)
    try:
        while True:
            ended = study is None or study.poll() is not None
            for kind, job in jobs(args, folder, plan, python):
                if job.path not in started:
                    started[job.path] = (peers if kind == "peer" else players).submit(job)
            if args.out:
                write(assemble(args.study, folder, plan), args.out)
            if ended and all(future.done() for future in started.values()):
                break
            time.sleep(2)
    finally:
        for pool in (players, peers):
            pool.shutdown(wait=False, cancel_futures=True)
    for future in started.values():
        future.result()
    show(assemble(args.study, folder, plan), console)
    if study is not None and study.returncode:
        raise SystemExit(f"The study did not finish: rl-training study status {folder / 'study'}")


if __name__ == "__main__":
    main()
