"""Advice on recorded data, and actions scaled by the data's range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import BC, IQL, ConfigError, evaluate_checkpoint, finetune, resume, train
from rl_training.api.datasets import validate_data
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.advice import DataSettings, advise
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec

Arrays = dict[str, Any]
SPEC = EnvSpec(3, 2, (-1.0, -1.0), (1.0, 1.0))
SMALL: dict[str, Any] = {"hidden_sizes": [16], "batch_size": 16, "num_threads": 1}


def episodes(count: int = 8, length: int = 25) -> Arrays:
    """Return good data: episodes of different lengths that terminate."""
    rng = np.random.default_rng(0)
    rows = count * length
    obs = rng.normal(size=(rows + 1, 3)).astype(np.float32)
    ends = (np.arange(rows) % length) == length - 1
    return {
        "observations": obs[:-1],
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "next_observations": obs[1:],
        "terminals": ends,
        "timeouts": np.zeros(rows, bool),
    }


def found(arrays: Arrays, settings: DataSettings | None = None) -> list[str]:
    return [advice.text for advice in advise(TransitionDataset.from_dict(arrays), SPEC, settings)]


def test_good_data_needs_no_advice() -> None:
    assert found(episodes()) == []


def test_a_small_range_of_actions_is_noticed() -> None:
    arrays = episodes()
    arrays["actions"] *= 0.025
    (text,) = found(arrays)
    assert "only 2.5% of the environment's range: set action_range=data" in text
    assert found(arrays, DataSettings(limits_actions=True)) == []


def test_different_scales_of_observations_are_noticed() -> None:
    arrays = episodes()
    for name in ("observations", "next_observations"):
        arrays[name] = arrays[name] * np.array([1, 1, 250], np.float32)
    (text,) = found(arrays)
    assert "differ by a factor of 2" in text
    assert "entry 2" in text
    assert text.endswith("set normalize_states=true")
    assert found(arrays, DataSettings(normalizes=True)) == []


def test_episodes_that_never_terminate_are_noticed() -> None:
    arrays = episodes()
    arrays["timeouts"], arrays["terminals"] = arrays["terminals"], arrays["timeouts"]
    advice = advise(TransitionDataset.from_dict(arrays), SPEC)
    assert [item.text.split(",")[0] for item in advice] == ["no episode terminates"]
    assert not advice[0].warns  # all have the same length, as with a time limit
    arrays["timeouts"][[10, 30]] = True
    advice = advise(TransitionDataset.from_dict(arrays))
    ((text, warns),) = [item for item in advice if item.text.startswith("no episode")]
    assert warns
    assert "'terminals'" in text


def test_episodes_that_are_cut_off_are_noticed() -> None:
    arrays = episodes()
    arrays["terminals"][-1] = False
    (text,) = found(arrays)
    assert text.startswith("1 episode of 8 is cut off before the end")


def test_duplicates_are_noticed() -> None:
    arrays = {name: np.concatenate([values, values[:50]]) for name, values in episodes().items()}
    (text,) = found(arrays)
    assert text.startswith("50 rows (20%) repeat earlier ones")


def test_ends_of_episodes_that_are_not_marked_are_noticed() -> None:
    arrays = episodes()
    arrays["observations"] = arrays["observations"].copy()
    arrays["observations"][60] += 1.0
    (text,) = found(arrays)
    assert text.startswith("in 1 row, the next observation is not that of the following row")


# --- Actions scaled by the data's range ---------------------------------------------------


def narrow(low: float = -0.1, high: float = 0.3) -> Arrays:
    """Return Pendulum data whose torques are a small part of -2 to 2."""
    arrays = record_random("Pendulum-v1", {}, 400, 0)
    rng = np.random.default_rng(1)
    arrays["actions"] = rng.uniform(low, high, (400, 1)).astype(np.float32)
    return arrays


def test_a_run_says_what_to_set_and_scales_actions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, path = narrow(), tmp_path / "narrow.npz"
    np.savez(path, **arrays)
    report, problems = validate_data(str(path), "Pendulum-v1")
    assert problems == []
    assert any("set action_range=data" in text for text in report.advice)
    config = {
        "algo": "iql",
        "env_id": "Pendulum-v1",
        "total_timesteps": 40,
        "eval_episodes": 1,
        "output_dir": str(tmp_path),
        "algo_kwargs": {**SMALL, "dataset_path": str(path)},
    }
    train(config)
    assert "set action_range=data" in capsys.readouterr().err
    config["algo_kwargs"] = {**SMALL, "dataset_path": str(path), "action_range": "data"}
    run = train(config).run_dir
    assert "action_range" not in capsys.readouterr().err
    low, high = float(arrays["actions"].min()), float(arrays["actions"].max())
    agent = IQL.load(run)
    obs = np.random.default_rng(2).normal(size=(200, 3)) * 100
    actions = agent.predict(obs.astype(np.float32))
    assert low <= actions.min() < actions.max() <= high
    assert SavedRun.load(run).config.algo_kwargs["action_range"] == [[low], [high]]
    # Everything that follows has the same range without looking at the data again.
    path.rename(tmp_path / "moved.npz")
    assert evaluate_checkpoint(run, episodes=1)["eval_episodes"] == 1
    moved = [f"dataset_path={tmp_path / 'moved.npz'}"]
    resume(run, ["total_timesteps=60", *moved])
    tuned = finetune(run, overrides=["total_timesteps=60", "learning_starts=20", *moved])
    assert SavedRun.load(tuned.run_dir).config.algo_kwargs["action_range"] == [[low], [high]]


def test_the_range_of_the_data_is_the_bounds_without_an_environment() -> None:
    agent = BC(dataset=narrow(), action_range="data", **SMALL).learn(20)
    actions = agent.predict(np.eye(3, dtype=np.float32) * 50)
    assert actions.min() >= -0.1
    assert actions.max() <= 0.3


def test_bounds_without_an_environment_are_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    BC(dataset=narrow(), action_low=-20, action_high=20, **SMALL).learn(2)
    assert "actions cover only 1% of the environment's range" in capsys.readouterr().err


def test_an_action_that_is_always_the_same_keeps_its_bounds() -> None:
    arrays = episodes()
    arrays["actions"][:, 1] = 0.5
    data = load_transition_dataset(
        {"dataset_kind": "memory", "action_range": "data"}, spec=SPEC, given=given(arrays)
    )
    assert data.spec is not None
    assert (data.spec.action_low[1], data.spec.action_high[1]) == (-1.0, 1.0)
    assert data.spec.action_low[0] == arrays["actions"][:, 0].min()
    np.testing.assert_allclose(data.column("actions")[:, 0].max(), 1.0)


def given(arrays: Arrays) -> Any:
    from rl_training.data.given_data import select_dataset

    return select_dataset(arrays)[1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[-3.0], [0.1]], "which is not inside its bounds -2 to 2"),
        ([[0.1], [-0.1]], "which is not inside its bounds"),
        ([[0.1, 0.2], [0.3, 0.4]], "2 and 2 values, but an action has 1"),
    ],
)
def test_invalid_ranges_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BC("Pendulum-v1", dataset=narrow(), action_range=value, **SMALL).learn(1)


def test_the_range_of_the_data_needs_continuous_actions_and_data() -> None:
    arrays = record_random("CartPole-v1", {}, 50, 0)
    with pytest.raises(ConfigError, match="applies to continuous actions"):
        BC("CartPole-v1", dataset=arrays, action_range="data", **SMALL).learn(1)
    with pytest.raises(ConfigError, match="needs recorded data"):
        train({"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {"action_range": "data"}})


def test_an_environment_to_evaluate_in_may_have_the_original_bounds() -> None:
    env = gym.make("Pendulum-v1")
    options = {**SMALL, "eval_episodes": 1, "action_range": "data"}
    agent = BC("Pendulum-v1", dataset=narrow(), eval_env=env, **options).learn(5)
    assert agent.evaluate(1)["eval_episodes"] == 1
