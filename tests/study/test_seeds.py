"""`seeds` in configs: one run for each seed, in a folder that can be resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training import SAC, Study, train, train_seeds
from rl_training.boundary.yaml_codec import dump_yaml
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig
from tests.cli.test_cli import cli
from tests.faults.runs import CONFIG, config_for

SMALL: dict[str, Any] = {key: value for key, value in CONFIG.items() if key != "seed"}


def test_seeds_are_ordinary_runs(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    single = train(config).run_dir
    del config["seed"]
    result = train_seeds(config | {"seeds": [1, 4]}, progress=False)
    assert result.path == tmp_path / "sac_Pendulum-v1_2seeds"
    assert [run.seed for run in result.runs] == [1, 4]
    found, expected = (TrainConfig.load(p / "config.yaml") for p in (result.runs[0].path, single))
    assert found.fingerprint() == expected.fingerprint()
    assert "\nseeds:" not in (single / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("overrides", "seeds", "seed"),
    [
        (["seeds=3"], (0, 1, 2), None),
        (["seeds=0,4"], (0, 4), None),
        (["seeds=[0, 4]"], (0, 4), None),
        (["seeds=3", "seeds=null"], None, 0),
        (["seed=7"], None, 7),
    ],
)
def test_overrides_replace_the_seed(overrides: list[str], seeds: Any, seed: int | None) -> None:
    config = TrainConfig.load("sac/pendulum", overrides)
    assert config.seeds == seeds
    assert config.to_dict().get("seed") == seed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 3, "seed": 1}, "seed = 1 and seeds = 3: set only one of them"),
        ({"seeds": 0}, "seeds = 0: should be a count, such as 5, or a list"),
        ({"seeds": [2, 2]}, "the seed 2 appears twice"),
    ],
)
def test_wrong_seeds_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**SMALL | change)


def test_a_single_run_and_a_study_reject_seeds() -> None:
    with pytest.raises(ConfigError, match=r"this trains a single run. Use train_seeds\(\)"):
        train(SMALL | {"seeds": 2})
    with pytest.raises(ConfigError, match="set them in the study instead"):
        Study([SMALL | {"seeds": 2}]).plan()
    with pytest.raises(ConfigError, match=r"seeds is missing: set it, or use train\(\) for seed 1"):
        train_seeds(CONFIG)


def test_the_command_line_trains_and_resumes_seeds(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_yaml(config_for(Path("runs"))))
    result = cli("train", "config.yaml", "seeds=2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "2 of 2 runs finished" in result.stdout
    folder = "runs/sac_Pendulum-v1_2seeds"
    again = cli("resume", folder, cwd=tmp_path)
    assert again.returncode == 0
    assert "2 already finished" in again.stderr
    unclear = cli("evaluate", folder, cwd=tmp_path)
    assert f"a folder of runs. Pass one of them; rl-training runs {folder} lists" in unclear.stderr
    refused = cli("resume", folder, "total_timesteps=900", cwd=tmp_path)
    assert refused.returncode == 2
    assert "has several runs, whose settings are fixed" in refused.stderr


def test_the_whole_config_can_be_shown(tmp_path: Path) -> None:
    shown = cli("train", "sac/pendulum", "seeds=0,3", "--show-config", "--json", cwd=tmp_path)
    config = json.loads(shown.stdout)
    assert config["seeds"] == [0, 3]
    assert "seed" not in config


def test_managed_seeds(tmp_path: Path) -> None:
    options = SMALL["algo_kwargs"] | {"output_dir": str(tmp_path), "eval_episodes": 0}
    agent = SAC("Pendulum-v1", seeds=[3, 5], **options)
    with pytest.raises(RLTrainingError, match=r"has not been trained: call learn\(\)"):
        agent.evaluate(1)
    agent.learn(60, progress=False)
    assert repr(agent) == "SAC('Pendulum-v1', seeds=[3, 5], trained)"
    result = agent.evaluate(2)
    returns = [member["eval_return_mean"] for member in result["members"]]
    assert result["eval_return_mean"] == pytest.approx(sum(returns) / 2)
    low, high = result["eval_return_ci95"]
    assert low < result["eval_return_mean"] < high
    assert agent.members[1].checkpoint.config.seed == 5
    assert agent.members[1].predict([1.0, 0.0, 0.0]).shape == (1,)
    for use in (lambda: agent.predict([1.0, 0.0, 0.0]), lambda: agent.save(tmp_path / "copy")):
        with pytest.raises(
            ConfigError, match=r"has 2 seeds: use one of them, such as members\[0\]"
        ):
            use()
    with pytest.raises(ConfigError, match=r"continue single ones, such as members\[0\].learn\(9\)"):
        agent.learn(9)


def test_managed_seeds_need_an_environment_id(tmp_path: Path) -> None:
    import gymnasium

    agent = SAC(gymnasium.make("Pendulum-v1"), seeds=2, output_dir=tmp_path)
    with pytest.raises(ConfigError, match="pass an environment by its id"):
        agent.learn(10)
