"""Spaces: what a file may contain, which values belong to it, and the packaged ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rl_training.algorithms.registry import REGISTRY
from rl_training.boundary.packaged_configs import config_names
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config, read_config
from rl_training.tuning.space import (
    Choices,
    Numbers,
    Space,
    config_value,
    make_space,
    own_params,
    packaged_space,
    with_params,
)

SAC = read_config("sac/pendulum")


def space(data: dict[str, Any], fixed: dict[str, str] | None = None) -> Space:
    return make_space(data, SAC, fixed or {}, "space.yaml")


def test_ranges_and_choices() -> None:
    found = space(
        {
            "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
            "num_critics": {"low": 2, "high": 5},
            "tau": {"low": 0.0, "high": 0.5, "step": 0.1} | {"low": 0.1},
            "hidden_sizes": [[64, 64], [256, 256]],
            "networks.critic.layer_norm": {"choices": [True, False]},
        }
    )
    assert found.dimensions["learning_rate"] == Numbers(1e-5, 1e-2, log=True)
    assert found.dimensions["num_critics"] == Numbers(2, 5, is_integer=True)
    assert found.dimensions["tau"] == Numbers(0.1, 0.5, step=0.1)
    assert found.dimensions["hidden_sizes"] == Choices(([64, 64], [256, 256]))
    assert found.size == math.inf
    assert Space({key: found.dimensions[key] for key in ("tau", "num_critics")}).size == 20


def test_the_declared_type_decides_whether_a_range_is_integral() -> None:
    assert space({"gamma": {"low": 0, "high": 1}}).dimensions["gamma"] == Numbers(0, 1)
    assert space({"batch_size": {"low": 1e1, "high": 1e2}}).dimensions["batch_size"] == Numbers(
        10, 100, is_integer=True
    )
    nested = space({"optimizers.critic.max_norm": {"low": 1, "high": 10}})
    assert nested.dimensions["optimizers.critic.max_norm"] == Numbers(1, 10, is_integer=True)


def test_values_have_few_digits_and_stay_inside() -> None:
    rate = Numbers(1.23446e-5, 1e-2, log=True)
    assert rate.tidy(0.00123456) == 0.001235
    assert rate.tidy(1.23446e-5) == 1.23446e-5
    assert Numbers(1, 9, is_integer=True).tidy(3.0) == 3
    assert Numbers(0.1, 0.5, step=0.1).tidy(0.30000000000000004) == 0.3


@pytest.mark.parametrize(
    ("value", "inside"), [(0.3, True), (0.35, False), (0.6, False), (True, False), ("0.3", False)]
)
def test_a_range_with_steps(value: Any, inside: bool) -> None:
    assert Numbers(0.1, 0.5, step=0.1).contains(value) is inside


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"learning_rat": [1, 2]}, r"learning_rat.*did you mean 'learning_rate'\?"),
        ({"gamma": {"low": 0.5, "high": 2}}, r"gamma = 2.0 does not work: gamma = 2.0"),
        ({"gamma": {"low": 0.9, "hihg": 1}}, "Unknown key 'hihg'; did you mean 'high'"),
        ({"gamma": {"low": 0.9}}, "The key 'high' is missing"),
        ({"gamma": {"low": 0.9, "high": 0.8}}, r"low = 0.9 should be less than high = 0.8"),
        ({"tau": {"low": 0, "high": 1, "log": True}}, "more than 0 with log: true"),
        ({"tau": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}, "cannot be combined"),
        ({"tau": {"low": 0.1, "high": 1, "step": 2}}, "step = 2 should be more than 0 and at most"),
        ({"tau": 0.1}, "0.1 should be a list of values or a range"),
        ({"tau": [0.1]}, "fewer than two choices"),
        ({"tau": [0.1, 0.2, 0.1]}, "the choice 0.1 appears twice"),
        ({"num_critics": {"low": 1.5, "high": 3}}, "is an integer, so low, high and step"),
        ({"num_critics": [2, "many"]}, "num_critics = 'many' does not work"),
        ({"env_id": ["A-v0", "B-v0"]}, "it changes the task"),
        ({"seed": [0, 1]}, "it cannot be tuned: use seeds"),
        ({"total_timesteps": [10, 20]}, "not a setting of the learner"),
        ({"device": ["cpu", "cuda"]}, "not a setting of the learner"),
        ({"algo": ["sac", "td3"]}, "tune each algorithm separately"),
        ({"tau": [0.1, 0.2], "algo_kwargs.tau": [0.1, 0.2]}, "it appears twice"),
        ({1: [0.1, 0.2]}, "keys should be strings"),
        ({}, "has no keys"),
        ({f"k{n}": [1, 2] for n in range(101)}, "at most 100"),
        ({"priority_exponent": [0.1, 0.2]}, "only applies to replay=prioritized"),
    ],
)
def test_problems_are_one_sentence(data: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        space(data)
    assert str(error.value).startswith("space.yaml")


def test_a_key_that_is_set_for_all_trials_contradicts_the_space() -> None:
    with pytest.raises(ConfigError, match="tau: it cannot be tuned: it is also set"):
        space({"tau": [0.1, 0.2]}, {"tau": "it is also set for all trials, so remove one"})


def test_values_may_be_valid_only_together() -> None:
    """The first value of each key contradicts the config, but not the other key's."""
    redq = read_config("redq/pendulum")
    found = make_space({"num_critics": [1, 5], "subset_size": [1, 2]}, redq, {}, "space.yaml")
    assert found.size == 4


def test_settings_of_a_trial() -> None:
    params = {"tau": 0.1, "networks.critic.layer_norm": True, "num_envs": 2}
    config = make_config(with_params(SAC, params))
    assert config.num_envs == 2
    assert config.algo_kwargs["tau"] == 0.1
    assert config.algo_kwargs["networks"] == {"critic": {"layer_norm": True}}
    for key, value in params.items():
        assert config_value(config, key) == value
    assert config_value(config, "networks.critic.missing") is None


# --- Packaged spaces --------------------------------------------------------------------


@pytest.mark.parametrize("name", config_names())
def test_every_packaged_config_has_a_space_that_contains_it(name: str) -> None:
    config = read_config(name)
    found = packaged_space(config, {})
    assert len(found.dimensions) >= 4
    assert own_params(found, make_config(config)) is not None


def test_every_algorithm_has_a_space_of_its_own() -> None:
    """Beside the keys that all algorithms share, at least one that is specific to it."""
    from rl_training.boundary.yaml_codec import parse_yaml
    from rl_training.tuning import space as module

    tables = parse_yaml(module._PACKAGED.read_text(encoding="utf-8"), "spaces.yaml")
    assert set(tables) - {"all"} == {name.partition("/")[0] for name in config_names()}
    for algo, entries in tables.items():
        for key in entries:
            owners = REGISTRY.values() if algo == "all" else [REGISTRY[algo]]
            assert any(key in entry.config_class().model_fields for entry in owners), (algo, key)


def test_keys_that_are_set_leave_the_packaged_space() -> None:
    found = packaged_space(SAC, {"learning_rate": "set", "tau": "set"})
    assert not {"learning_rate", "tau"} & found.dimensions.keys()
    with pytest.raises(ConfigError, match="All keys of the packaged space of sac are fixed"):
        packaged_space(SAC, dict.fromkeys(packaged_space(SAC, {}).dimensions, "set"))


def test_the_packaged_space_grows_to_contain_the_config() -> None:
    config = make_config(SAC | {"algo_kwargs": {"learning_rate": 0.1, "batch_size": 100}})
    found = packaged_space(config.to_dict(), {})
    rate, batch = found.dimensions["learning_rate"], found.dimensions["batch_size"]
    assert isinstance(rate, Numbers)
    assert rate.high == 0.1
    assert isinstance(batch, Choices)
    assert batch.values == (64, 128, 256, 512, 100)
