"""How `train` reads its arguments, `--show-config`, and shell completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rl_training.cli import completion
from rl_training.cli.train_arguments import DEFAULT_STEPS, parse_train_arguments
from rl_training.errors import ConfigError
from tests.cli.test_cli import SMALL, cli, new_process, ok
from tests.faults.zygote import ENVIRONMENT


def test_positional_argument_is_a_config() -> None:
    named, _ = parse_train_arguments("sac/pendulum", ["seed=1"])
    word, note = parse_train_arguments(None, ["seed=1", "sac/pendulum"])
    assert (named, note) == (word, "")


def test_overrides_alone_are_a_config() -> None:
    config, note = parse_train_arguments(None, ["batch_size=32", "env_id=Pendulum-v1", "algo=sac"])
    assert (config.algo, config.total_timesteps) == ("sac", DEFAULT_STEPS)
    assert config.algo_kwargs == {"batch_size": 32}
    assert "total_timesteps=N" in note
    config, note = parse_train_arguments(
        None, ["algo=sac", "env_id=Pendulum-v1", "total_timesteps=5"]
    )
    assert (config.total_timesteps, note) == (5, "")


@pytest.mark.parametrize(
    ("named", "words", "sentence"),
    [
        (None, [], "Pass a config"),
        (None, ["seed=1"], "Pass a config"),
        (None, ["sac"], "'sac' is an algorithm, not a config"),
        (None, ["sac/pendulm"], "did you mean 'sac/pendulum'"),
        (None, ["sac/pendulum", "td3/pendulum"], "a run has only one config"),
        ("sac/pendulum", ["seed"], "is not an override"),
        (None, ["algo=sac"], "env_id=Pendulum-v1"),
        (None, ["algo=scc", "env_id=Pendulum-v1"], "did you mean 'sac'"),
    ],
)
def test_ambiguous_arguments_are_a_one_line_error(
    named: str | None, words: list[str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_train_arguments(named, words)
    assert sentence in str(caught.value)


def test_show_config_prints_all_keys_without_training(tmp_path: Path) -> None:
    shown = yaml.safe_load(ok("train", "sac/pendulum", "--show-config", "seed=4", cwd=tmp_path))
    assert (shown["seed"], shown["algo_kwargs"]["gamma"]) == (4, 0.99)
    as_json = ok("train", "sac/pendulum", "--show-config", "--json", "seed=4", cwd=tmp_path)
    assert json.loads(as_json) == shown
    assert not os.listdir(tmp_path)
    assert cli("train", "sac/pendulum", "--show-config", "seed=x", cwd=tmp_path).returncode == 2


def test_train_prints_non_default_settings(tmp_path: Path) -> None:
    keys = [*SMALL, "total_timesteps=40", "eval_episodes=0"]
    done = cli("train", "algo=sac", "env_id=Pendulum-v1", *keys, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stderr.splitlines()
    assert head.startswith("Settings that differ from the defaults")
    settings = dict(line.split(None, 1) for line in lines if line.startswith("  "))
    assert (settings["env_id"], settings["batch_size"]) == ("Pendulum-v1", "16")
    assert "gamma" not in settings
    starts = {line.index(line.split()[1]) for line in lines if line.startswith("  ")}
    assert len(starts) == 1  # aligned


# --- Completion -------------------------------------------------------------------


def completed(words: str, cwd: Path) -> list[str]:
    """Return bash's completions of the last word."""
    variables = {"_RL_TRAINING_COMPLETE": "complete_bash", "COMP_WORDS": words}
    variables["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    script = str(Path(sys.executable).with_name("rl-training"))
    done = subprocess.run(
        [script], capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT | variables, check=False
    )
    return done.stdout.split()


def test_completion_in_a_shell(tmp_path: Path) -> None:
    assert "train" in completed("rl-training tr", tmp_path)
    assert completed("rl-training train sac/p", tmp_path) == ["sac/pendulum", "sac/pendulum_simba"]


def test_completion_of_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.json").touch()
    (tmp_path / "runs" / "group").mkdir()
    assert completion.complete_config("sac/pen") == ["sac/pendulum", "sac/pendulum_simba"]
    assert completion.complete_config("mi") == ["mine.yaml"]
    assert completion.complete_train("algo=td3") == ["algo=td3", "algo=td3_bc"]
    assert completion.complete_train("tot") == ["total_timesteps="]
    assert completion.complete_run("runs/") == ["runs/group/", "runs/one"]
    assert completion.complete_run("") == ["runs/", "runs/group/", "runs/one"]
    assert completion.complete_run("no/such") == []
    assert completion.complete_config_name("mi") == []


def test_completion_does_not_import_heavy_modules(tmp_path: Path) -> None:
    code = (
        "import sys; from rl_training.cli import completion as c;"
        "c.complete_train(''); c.complete_run(''); c.complete_algorithm('');"
        "sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    )
    assert new_process(sys.executable, "-c", code, cwd=tmp_path).returncode == 0
