"""`tune` on the command line."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_training.cli.tune_arguments import default_folder, parse_tune_arguments
from rl_training.errors import ConfigError
from rl_training.tuning.trials import TrialIndex, TrialStatus
from rl_training.tuning.tuning import Tuning
from tests.cli.test_cli import cli, ok, only_json
from tests.faults.zygote import shared_zygote
from tests.tuning.simulated import SimulatedExecutor, tuning
from tests.tuning.synthetic import register, unregister

SMALL = [
    *("total_timesteps=60", "hidden_sizes=[16,16]", "batch_size=16", "learning_starts=30"),
    *("buffer_capacity=1000", "eval_episodes=1", "tensorboard=false"),
]
TUNE = ["tune", "sac/pendulum", "--trials", "2", "--seeds", "1", "--validation-seeds", "7,", *SMALL]


def parse(*words: str, config: str | None = None, **options: Any) -> Tuning:
    return parse_tune_arguments(words, config=config, space=None, options=options)


# --- Arguments --------------------------------------------------------------------


def test_a_config_and_settings() -> None:
    tuning = parse("sac/pendulum", "tau=0.01", trials=7, seeds="0,3", sampler=None)
    assert tuning.description.config == "sac/pendulum"
    assert tuning.description.set == {"tau": 0.01}
    assert (tuning.description.trials, tuning.description.seeds) == (7, (0, 3))
    assert parse(config="sac/pendulum").description == parse("sac/pendulum").description
    assert default_folder(tuning, ["sac/pendulum"], None) == Path("tunings/sac_pendulum")


def test_the_folder_of_a_tuning_continues_it(tmp_path: Path) -> None:
    folder = tmp_path / "tuning"
    register()
    tuning(trials=2).run(folder, executor=SimulatedExecutor(), progress=False)
    unregister()
    again = parse(str(folder), trials=9)
    assert again.description.trials == 9
    assert default_folder(again, [str(folder)], None) == folder
    again = parse(str(folder), executor="population", members=4)
    assert (again.description.executor, again.description.members) == ("population", 4)
    for options, key in (({"seeds": "4"}, "--seeds"), ({"sampler": "gp"}, "--sampler")):
        with pytest.raises(ConfigError, match=f"{key}: the tuning in .* is already described"):
            parse(str(folder), **options)
    with pytest.raises(ConfigError, match="tau: the tuning in"):
        parse(str(folder), "tau=0.1")


def test_one_config_is_needed() -> None:
    with pytest.raises(ConfigError, match="Pass a config"):
        parse("tau=0.1")
    with pytest.raises(ConfigError, match="a tuning has one config"):
        parse("sac/pendulum", "td3/pendulum")


# --- The command --------------------------------------------------------------------


def test_a_tuning_from_the_command_line(tmp_path: Path) -> None:
    text = ok(*TUNE, cwd=tmp_path)
    assert text.startswith("2 of 2 trials done; this session took ")
    assert "Fresh seeds 7:" in text
    folder = tmp_path / "tunings" / "sac_pendulum"
    assert [trial.status for trial in TrialIndex.open(folder)] == [TrialStatus.COMPLETE] * 2
    result = only_json(*TUNE, cwd=tmp_path)
    assert (result["complete"], result["open"], result["planned"]) == (2, 0, 2)
    assert len(result["validation"]["best_scores"]) == 1
    config = yaml.safe_load((tmp_path / result["config"]).read_text())
    assert config["total_timesteps"] == 60
    assert config["algo_kwargs"]["learning_rate"] == result["best"]["params"]["learning_rate"]
    more = only_json("tune", "tunings/sac_pendulum", "--trials", "3", cwd=tmp_path)
    assert (more["complete"], more["planned"]) == (3, 3)
    assert "trial-0002" in ok("study", "status", "tunings/sac_pendulum", cwd=tmp_path)
    assert ok("train", result["config"], "total_timesteps=40", cwd=tmp_path)


def test_an_interrupt_stops_cleanly(tmp_path: Path) -> None:
    long = [word.replace("=60", "=1000000") for word in TUNE]
    child = shared_zygote().start(*long, "eval_interval=100", cwd=tmp_path)
    folder = tmp_path / "tunings" / "sac_pendulum"
    deadline = time.monotonic() + 120
    while not list(folder.glob("runs/*/*/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        assert child.is_running()
        time.sleep(0.1)
    refused = cli(*long, "eval_interval=100", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is being run by another process" in refused.stderr
    os.kill(child.pid, signal.SIGINT)
    done = child.wait()
    assert done.status == 130, done.err
    assert "Interrupted. Continue with: rl-training tune sac/pendulum" in done.out
    assert "Traceback" not in done.err


def test_the_space_can_be_shown_saved_and_used(tmp_path: Path) -> None:
    text = ok("tune", "td3/pendulum", "--show-space", "tau=0.01", cwd=tmp_path)
    space = yaml.safe_load(text)
    assert "policy_delay" in space
    assert "tau" not in space
    (tmp_path / "space.yaml").write_text(text)
    words = ["tune", "td3/pendulum", "--show-space", "--space", "space.yaml"]
    assert only_json(*words, cwd=tmp_path) == space
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


@pytest.mark.parametrize("config", ["iql/cartpole", "td3_bc/halfcheetah"])
def test_showing_a_space_needs_and_records_no_data(config: str, tmp_path: Path) -> None:
    assert "learning_rate" in yaml.safe_load(ok("tune", config, "--show-space", cwd=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sac/pendulm"], "did you mean 'sac/pendulum'?"),
        (["sac/pendulum", "gama=1"], "Unknown key 'gama'"),
        (["sac/pendulum", "--sampler", "cmaes"], "sampler = 'cmaes' is unknown; valid names:"),
        (["sac/pendulum", "--space", "none.yaml"], "The space file 'none.yaml' does not exist."),
        (
            ["sac/pendulum", "--space", "bad.yaml"],
            "The space: Unknown key 'gama' for sac; did you mean",
        ),
        (
            ["sac/pendulum", "--space", "tau.yaml", "tau=0.1"],
            "The space: tau: it cannot be tuned: it is also set for all trials",
        ),
        (["sac/pendulum", "--storage", "redis://localhost"], "Redis storages are not supported"),
        (["sac/pendulum", "--warm-start", "none"], "none is not a folder with an index.jsonl"),
        (["sac/pendulum", "--objective", "fqe"], "objective = fqe: sac learns online"),
        (["sac/pendulum", "--shard", "4"], "such as 3/16"),
        (["sac/pendulum", "--executor", "gpu"], "should be local, population or ray."),
        (["sac/pendulum", "--members", "4"], "members = 4 limits populations: set executor"),
        (["sac/pendulum", "--executor", "ray", "--members", "4"], "use --executor population."),
        (
            ["sac/pendulum", "--executor", "population", "--address", "auto"],
            "--address 'auto': add --executor ray.",
        ),
        (
            ["sac/pendulum", "--executor", "population", "--shard", "1/2"],
            "shard = 1/2: a population trains in one process",
        ),
        (["."], "is not a tuning: it has no index.jsonl"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("gama: [0.9, 0.99]\n")
    (tmp_path / "tau.yaml").write_text("tau: [0.01, 0.02]\n")
    done = cli("tune", *words, "--out", "t", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line
    assert {path.name for path in tmp_path.rglob("*")} == {"bad.yaml", "tau.yaml"}


def test_help_shows_every_option() -> None:
    text = ok("tune", "--help", cwd=Path.cwd())
    for option in ("--trials", "--seeds", "--space", "--out", "--sampler", "--pruner", "--storage"):
        assert option in text
