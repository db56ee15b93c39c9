"""The README is short and correct: its code and commands run, and its links work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

from rl_training import cli
from rl_training.data.dataset_writers import write_arrays
from rl_training.experiment.config import make_config
from rl_training.runtime.recording import record_random
from tests.faults.zygote import shared_zygote
from tests.test_docs import ROOT, anchors, blocks, commands, read

README = read("README.md")
TINY = [
    *("total_timesteps=120", "eval_interval=100", "eval_episodes=1", "checkpoint_interval=100"),
    *("hidden_sizes=[16]", "batch_size=16", "num_threads=1", "tensorboard=false"),
]
SMALL = {
    **{
        "total_timesteps=40000": "total_timesteps=160",
        "total_timesteps=5000": "total_timesteps=60",
    },
    **{"10000": "600", "20": "1", "--fqe": "--fqe --fqe-updates 20"},
}
"""Replaces the budgets of the README, which take minutes, with ones that take seconds."""


def test_readme_fits_on_200_lines() -> None:
    assert len(README.splitlines()) <= 200


def test_links_work_outside_of_the_repository() -> None:
    """A package index shows the README without the repository, so every link is absolute."""
    targets = re.findall(r"\]\(([^)\s]+)\)", README)
    (repository,) = re.findall(r'^Repository = "(.*)"$', read("pyproject.toml"), re.M)
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    for target in targets:
        assert target.startswith("https://"), target
        for base in (f"{repository}/blob/main/", f"{raw}/main/"):
            if target.startswith(base):
                path, _, anchor = target.removeprefix(base).partition("#")
                assert (ROOT / path).is_file(), target
                assert not anchor or anchor in anchors(ROOT / path), target
    assert f"{repository}/blob/main/docs/index.md" in targets


DEMANDED = {
    "AWAC": "algo: awac",
    "EDAC": "`algo: edac`",
    "RLPD": "rlpd/pendulum",
    "kinds of datasets": "`.pt`, `.hdf5` (D4RL), a folder of `.npy` files and Minari datasets",
    "the Minari extra": "python -m pip install '.[offline]'",
    "reward wrappers": "reward: {scale:",
    "a plot": "docs/images/",
    "installation": "## Install",
    "the quick start": "## Quick start",
    "offline to online": "## Offline to online in five commands",
    "a comparison": "## How it compares",
}


@pytest.mark.parametrize("topic", DEMANDED)
def test_readme_covers_topic(topic: str) -> None:
    assert DEMANDED[topic] in README


def test_readme_configs_are_valid_and_stop_early_online_and_offline() -> None:
    configs = [make_config(yaml.safe_load(text)) for _, text in blocks("yaml")]
    assert {config.mode for config in configs} >= {"online", "offline"}
    for config in configs:
        assert {"eval_interval", "early_stopping"} <= config.algo_kwargs.keys()


def test_readme_python_runs(tmp_path: Path) -> None:
    code = "\n".join(code for _, code in blocks("python"))
    done = shared_zygote().run(code=code, cwd=tmp_path)
    assert done.status == 0, done.err


def test_readme_shows_every_command() -> None:
    group: Any = typer.main.get_command(cli.app)
    assert {shlex.split(line)[1] for line in commands("README.md")} == set(group.commands)


def test_offline_to_online_takes_five_commands() -> None:
    section = README.partition("## Offline to online in five commands")[2]
    assert len(re.findall(r"^rl-training ", section.partition("```\n\n")[0], re.M)) == 5


def test_readme_commands_run(tmp_path: Path) -> None:
    """Run all commands in order, in one folder, with small budgets."""
    pytest.importorskip("h5py")
    pytest.importorskip("matplotlib")
    arrays = record_random("Pendulum-v1", {}, 400, 0)
    for name in ("my_data.npz", "my_data.hdf5"):
        write_arrays(arrays, tmp_path / name)
    np.save(tmp_path / "obs.npy", np.zeros((2, 3), dtype=np.float32))
    (offline,) = (text for _, text in blocks("yaml") if "algo: awac" in text)
    (tmp_path / "awac.yaml").write_text(offline)
    script = ["from tests.faults.zygote import run_command"]
    for line in commands("README.md"):
        words = [part for word in shlex.split(line)[1:] for part in SMALL.get(word, word).split()]
        if words[0] == "train":
            words += TINY if "awac" in line or "iql" in line else [*TINY, "learning_starts=60"]
        elif words[0] == "data" and words[1] == "convert":
            words[-1] = "again.npz"
        elif words[0] == "finetune":
            words.append("learning_starts=30")
        elif words[0] == "card":
            words += ["--episodes", "1"]
        elif words[0] == "tune":
            words += [*TINY, "learning_starts=60", "--seeds", "1", "--validation-seeds", "1"]
        elif words[0] == "study":
            words = [*words, *TINY, "learning_starts=60", "--seeds", "1"]
        script.append(f"run_command(*{words!r})")
    done = shared_zygote().run(code="\n".join(script), cwd=tmp_path)
    assert done.status == 0, done.err
    written = {path.name for path in tmp_path.iterdir()}
    assert {"curve.png", "compared.png", "my_data.png", "actions.npy"} <= written
