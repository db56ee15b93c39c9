"""`runs`, `runs delete`, `configs keys`, and tables in narrow terminals."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training import train
from rl_training.cli.output import table_lines
from rl_training.cli.runs import SORT_KEYS
from rl_training.cli.summaries import training_lines
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.config_keys import changed_settings, config_keys
from rl_training.experiment.run_directory import delete_run, lock_run
from tests.cli.test_cli import cli, ok, only_json

Config = Callable[..., dict[str, Any]]


@pytest.fixture
def runs(tmp_path: Path, small_config: Config) -> Path:
    """Create three runs with different results, times and tags in their records."""
    made = train(small_config(total_timesteps=20)).run_dir
    folder = tmp_path / "made"
    facts = {
        "a": {"best_return": -5.0, "step": 10, "updated": "2024-01-01T00:00:00Z"},
        "b": {"best_return": -1.0, "step": 30, "updated": "2024-03-01T00:00:00Z"},
        "c": {"best_return": None, "step": 20, "updated": "2024-02-01T00:00:00Z"},
    }
    for name, changes in facts.items():
        copy = Path(shutil.copytree(made, folder / name))
        info = json.loads((copy / "run.json").read_text())
        (copy / "run.json").write_text(json.dumps(info | changes))
        text = (copy / "config.yaml").read_text()
        tags = "tags: [trial, x]" if name == "b" else "tags: [trial]"
        (copy / "config.yaml").write_text(text.replace("tags: []", tags))
    return folder


def names(*words: str, cwd: Path) -> list[str]:
    return [Path(row["path"]).name for row in only_json("runs", *words, cwd=cwd)["runs"]]


def test_sorting(runs: Path) -> None:
    expected = {"name": "abc", "time": "bca", "steps": "bca", "best": "bac"}
    for key, order in expected.items():
        assert "".join(names(str(runs), "--sort", key, cwd=runs)) == order, key
    for key in SORT_KEYS:
        assert sorted(names(str(runs), "--sort", key, cwd=runs)) == ["a", "b", "c"]
    wrong = cli("runs", str(runs), "--sort", "size", cwd=runs)
    assert (wrong.returncode, "use name, time, steps" in wrong.stderr) == (2, True)


def test_tags(runs: Path) -> None:
    assert names(str(runs), "--tag", "trial", cwd=runs) == ["a", "b", "c"]
    assert names("--tag", "x", "--tag", "trial", str(runs), cwd=runs) == ["b"]
    assert "No run in" in ok("runs", str(runs), "--tag", "none", cwd=runs)
    assert "trial, x" in ok("runs", str(runs), cwd=runs)


def test_delete(runs: Path) -> None:
    asked = cli("runs", "delete", "a", cwd=runs)
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert ok("runs", "delete", "a", "--yes", cwd=runs) == "Deleted a\n"
    assert only_json("runs", "delete", "b", "-y", cwd=runs) == {"deleted": ["b"]}
    assert os.listdir(runs) == ["c"]


def test_delete_rejects_everything_except_runs(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / "link").symlink_to(runs / "a")
    refused = {
        "notes": "is not a run folder",
        "none": "does not exist",
        "link": "is a link",
        "a/checkpoints": "is not a run folder",
        ".": "is not a run folder",
    }
    for path, sentence in refused.items():
        # The run listed before it is not deleted either.
        done = cli("runs", "delete", "b", path, "--yes", cwd=runs)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
        assert (runs / "b" / "run.json").exists()
    assert sorted(os.listdir(runs)) == ["a", "b", "c", "link", "notes"]


def test_delete_rejects_a_run_in_training(runs: Path) -> None:
    with lock_run(runs / "a"), pytest.raises(ConfigError, match="is being trained"):
        delete_run(runs / "a")
    shutil.copytree(runs / "b", runs / "a" / "inner")
    with pytest.raises(ConfigError, match="contains another run"):
        delete_run(runs / "a")
    assert (runs / "a" / "checkpoints").is_dir()


def test_delete_does_not_follow_links(runs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (runs / "a" / "elsewhere").symlink_to(outside)
    delete_run(runs / "a")
    assert (outside / "file").exists()
    assert not (runs / "a").exists()


# --- Tables -----------------------------------------------------------------------


HEADS = ["name", "one", "two", "three"]
ROWS = [["runs/sac_Pendulum-v1_seed0_finetuned", "1" * 20, "2" * 20, "some words to wrap " * 2]]


def test_wide_table_shows_all_columns() -> None:
    lines = list(table_lines(HEADS, ROWS, None, drop=["one", "two"]))
    assert len(lines) == 2
    assert all(cell.strip() in lines[1] for cell in ROWS[0])


def test_narrow_table_drops_columns_and_keeps_the_name() -> None:
    head, *lines = table_lines(HEADS, ROWS, 80, drop=["one", "two"])
    assert head.split() == ["name", "two", "three"] or head.split() == ["name", "three"]
    assert lines[0].startswith(ROWS[0][0] + "  ")
    assert max(map(len, [head, *lines])) <= 80


def test_last_column_is_wrapped() -> None:
    rows = [["sac", "word " * 40]]
    lines = list(table_lines(["name", "text"], rows, 40))
    assert len(lines) > 4
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("      word") for line in lines[2:])


def test_table_has_no_borders(tmp_path: Path) -> None:
    lines = ok("algorithms", cwd=tmp_path).splitlines()
    assert lines[0].split()[:2] == ["name", "algorithm"]
    assert all(line.isascii() or "│" not in line for line in lines)
    assert len({line.index("online") for line in lines if " online " in line}) == 1


# --- Keys -------------------------------------------------------------------------


def test_keys_of_an_algorithm(tmp_path: Path) -> None:
    keys = {key["name"]: key for key in only_json("configs", "keys", "sac", cwd=tmp_path)["keys"]}
    assert keys["batch_size"]["default"] == 256
    assert keys["seed"]["allowed"] == "≥ 0"
    assert {"alpha", "total_timesteps", "eval_interval", "reward_scale"} <= keys.keys()
    assert all(key["description"] for key in keys.values())
    found = ok("configs", "keys", "sac", "warmup", cwd=tmp_path).splitlines()
    assert [line.split()[0] for line in found] == ["key", "learning_rate_warmup"]
    assert "No key of sac" in ok("configs", "keys", "sac", "zzz", cwd=tmp_path)
    wrong = cli("configs", "keys", "scc", cwd=tmp_path)
    assert (wrong.returncode, "did you mean 'sac'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("algo", ["iql", "her", "dqn", "rlpd"])
def test_config_keys_are_flat_and_unique(algo: str) -> None:
    names = [key.name for key in config_keys(algo)]
    assert len(names) == len(set(names))
    assert "algo_kwargs" not in names


def test_changed_settings_omit_defaults() -> None:
    config = TrainConfig.load("sac/pendulum", ["seed=3", "hidden_sizes=[8]", "gamma=0.99"])
    changed = changed_settings(config)
    assert (changed["seed"], changed["hidden_sizes"]) == (3, [8])
    assert "gamma" not in changed  # it has its default
    assert "schedule_horizon" not in changed


def test_changed_settings_omit_defaults_of_early_stopping() -> None:
    config = TrainConfig.load("sac/pendulum", ["early_stopping={patience: 3, min_delta: 5.0}"])
    assert changed_settings(config)["early_stopping"] == {"min_delta": 5.0, "patience": 3}


def test_summary_counts_environment_steps_after_pretraining(small_config: Config) -> None:
    result = train(small_config(total_timesteps=20))
    assert next(training_lines(result, ())) == "Finished at step 20."
    later = replace(result, metrics=result.metrics | {"step": 50, "env_steps": 20})
    assert next(training_lines(later, ())) == "Finished at step 50 (20 environment steps)."
