"""Configs: loading, overrides and error messages."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import BaseModel

from rl_training import build_control_callbacks
from rl_training.algorithms.registry import REGISTRY
from rl_training.api import train
from rl_training.api.finetuning import FRESH_KEYS, REWARD_KEYS
from rl_training.api.resuming import RESUMABLE_KEYS
from rl_training.boundary.packaged_configs import config_names
from rl_training.config_model import Trait, keys_with
from rl_training.data.given_data import DATASET_KEYS
from rl_training.envs.factory import EnvConfig
from rl_training.errors import ConfigError
from rl_training.experiment.config import (
    ConfigParts,
    TrainConfig,
    apply_override,
    kwargs_models,
    make_config,
    read_config,
)
from rl_training.experiment.config_keys import allowed_text
from rl_training.runtime.callbacks import EarlyStoppingCallback
from rl_training.runtime.control_config import ControlsConfig

STOPPING = {"early_stopping": {"patience": 1}}
BASE: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 100}


@pytest.mark.parametrize("name", config_names())
def test_packaged_configs_are_valid_and_round_trip(name: str) -> None:
    config = TrainConfig.load(name).resolved()
    assert make_config(config.to_dict()) == config
    assert config.resolved() == config


def test_configs_at_the_root_are_the_packaged_ones() -> None:
    root = Path(__file__).parents[2] / "configs"
    found = {f"{file.parent.name}/{file.stem}" for file in root.glob("*/*.yaml")}
    assert root.is_symlink()
    assert found == set(config_names())


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_key_names_are_disjoint(entry: Any) -> None:
    """A short key or an `algo_kwargs` key has only one meaning."""
    models: list[type[BaseModel]] = [TrainConfig, *kwargs_models(entry.name), EnvConfig]
    names = [name for model in models for name in model.model_fields]
    assert len(names) == len(set(names))


def test_kwargs_are_split_by_name() -> None:
    parts = make_config(BASE | {"algo_kwargs": {"batch_size": 7, "eval_interval": 9}}).parts
    assert (parts.algorithm.batch_size, parts.controls.eval_interval) == (7, 9)


def test_training_parses_each_config_once(
    small_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once as given and once with all defaults; earlier versions parsed 26 times."""
    parsed: list[TrainConfig] = []

    def counted(config: TrainConfig) -> ConfigParts:
        parsed.append(config)
        return parse(config)

    parse = ConfigParts.of
    monkeypatch.setattr(ConfigParts, "of", counted)
    train(small_config(total_timesteps=40))
    assert len(parsed) == 2
    assert len({id(config) for config in parsed}) == 2


def test_model_copy_updates_the_parts() -> None:
    config = make_config(BASE | {"algo_kwargs": {"batch_size": 7}})
    copied = config.model_copy(update={"algo_kwargs": {"batch_size": 8}})
    assert (config.parts.algorithm.batch_size, copied.parts.algorithm.batch_size) == (7, 8)
    assert config.fingerprint() != copied.fingerprint()


@pytest.mark.parametrize(
    "changes",
    [{}, {"algo": "her"}, {"algo": "iql", "algo_kwargs": {"finetuned_step": 5}}],
    ids=["plain", "hindsight", "finetuning"],
)
def test_config_survives_pickling(changes: dict[str, Any]) -> None:
    config = make_config(BASE | changes)
    loaded = pickle.loads(pickle.dumps(config))
    assert loaded == config
    assert loaded.parts == config.parts
    assert loaded.to_dict() == config.to_dict()


def test_traits_of_keys() -> None:
    """Keys that a resume may change, that fine-tuning resets, and that set data and rewards."""
    assert {
        *("total_timesteps", "output_dir", "tags", "eval_episodes", "checkpoint_interval"),
        *("dataset_kind", "dataset_path", "dataset_id", "dataset_download", "dataset_size"),
        *("dataset_memory", "dataset_seed", "num_epochs", "log_interval", "device"),
        *("eval_interval", "early_stopping", "keep_checkpoints", "logging", "num_threads"),
        *("schedule_horizon", "engine", "matmul_precision"),
    } == RESUMABLE_KEYS
    assert set(FRESH_KEYS) == {
        *("num_epochs", "validation_fraction", "action_low", "action_high"),
        *("learning_rate_warmup", "schedule_horizon", "early_stopping"),
        *("learning_starts", "random_play", "offline_batch_ratio", "offline_pretrain_updates"),
    }
    assert set(DATASET_KEYS) == {
        *("dataset_kind", "dataset_path", "dataset_id"),
        *("dataset_download", "dataset_size", "dataset_seed"),
    }
    rewards = {"reward_scale", "reward_shift", "reward_clip_min", "reward_clip_max"}
    assert set(REWARD_KEYS) == rewards
    assert set(keys_with(Trait.LABEL, TrainConfig)) == {"output_dir", "tags", "logging"}


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_traits_of_sizes(entry: Any) -> None:
    model = entry.config_class()
    networks = {"hidden_sizes", "critic_hidden_sizes", "num_critics", "num_quantiles", "networks"}
    updates = {"batch_size", "num_sampled_actions"}
    assert set(keys_with(Trait.NETWORK_SIZE, model)) == networks & set(model.model_fields)
    assert set(keys_with(Trait.UPDATE_SIZE, model)) == updates & set(model.model_fields)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"algo": "sca"},
            "Unknown algorithm 'sca'; did you mean 'sac'? A custom algorithm needs register_alg",
        ),
        ({"sede": 1}, "Unknown key 'sede'; did you mean 'seed'"),
        (
            {"algo_kwargs": {"alpha": "autoo"}},
            "alpha = 'autoo': should be a valid number or 'auto'.",
        ),
        (
            {"algo_kwargs": {"alpha": -1}},
            "alpha = -1: should be greater than or equal to 0 or 'auto'",
        ),
        ({"algo_kwargs": {"hidden_sizes": 64}}, "hidden_sizes = 64: should be a list."),
        (
            {"algo_kwargs": {"early_stopping": {"patiance": 3}}},
            "Unknown key 'patiance' in early_stopping; did you mean 'patience'?",
        ),
        ({"seed": -1}, "seed = -1: should be greater than or equal to 0"),
        ({"seed": "x"}, "seed = 'x': should be a valid integer"),
        ({"total_timesteps": 0}, "total_timesteps = 0: should be greater than 0"),
        ({"num_envs": 0}, "num_envs = 0"),
        (
            {"algo_kwargs": {"batchsize": 1}},
            "'batchsize' for sac; did you mean 'batch_size'",
        ),
        ({"algo_kwargs": {"env": "A-v0"}}, "'env' for sac; did you mean 'env_id'"),
        ({"algo_kwargs": {"ent_coef": 1}}, "'ent_coef' for sac; did you mean 'alpha'"),
        ({"algo_kwargs": {"verbose": 1}}, "valid names: "),
        (
            {"algo_kwargs": {"wandb": {"project": "mine"}}},
            "'wandb' for sac; write logging: {wandb: …}, or logging.wandb=… on the command line.",
        ),
        (
            {"algo_kwargs": {"activation": "tanh"}},
            "'activation' for sac; write networks: {all: {activation: …}}, or "
            "networks.all.activation=… on the command line.",
        ),
        ({"activation": "tanh"}, "'activation' for sac; write networks: {all: {activation"),
        ({"algo_kwargs": {"buffer_size": 1}}, "did you mean 'buffer_capacity'"),
        ({"algo_kwargs": {"lr": 1}}, "did you mean 'learning_rate'"),
        ({"algo_kwargs": {"actor_lr": 1}}, "write optimizers: {actor: {learning_rate: …}}"),
        ({"algo": "dqn", "algo_kwargs": {"actor_lr": 1}}, "for dqn; did you mean 'learning_rate'?"),
        ({"algo_kwargs": {"n_envs": 1}}, "did you mean 'num_envs'"),
        ({"algo_kwargs": {"max_steps": 1}}, "did you mean 'total_timesteps'"),
        ({"algo_kwargs": {"max_grad_norm": 1}}, "write optimizers: {all: {max_norm: …}}"),
        ({"algo_kwargs": {"clip_range": 1}}, "'clip_range' for sac; valid names: "),
        ({"algo_kwargs": {"expectile": 1}}, "'expectile' is not an option of SAC; it is an option"),
        ({"algo_kwargs": {"num_envs": 2}}, "'num_envs' is a top-level key: move it out"),
        ({"algo_kwargs": {"gamma": 2}}, "gamma = 2: should be less than or equal to 1"),
        ({"algo_kwargs": {"alpha": "fixed"}}, "alpha = 'fixed'"),
        ({"algo_kwargs": {"early_stopping": {"patiense": 3}}}, "did you mean 'patience'"),
        ({"algo_kwargs": {"early_stopping": {}}}, "set patience or target_value"),
        ({"algo_kwargs": STOPPING | {"eval_interval": 0}}, "set eval_interval above 0"),
        ({"eval_episodes": 0, "algo_kwargs": STOPPING}, "set eval_episodes above 0"),
        ({"algo_kwargs": {"early_stopping": {"patience": 1, "metric": "x"}}}, "metric = 'x'"),
        ({"env_kwargs": {"vectorization": "threads"}}, "vectorization = 'threads'"),
        ({"env_kwargs": {"cfg": {1: 2}}}, "env_kwargs.cfg has the key 1, but keys should be str"),
        (
            {"env_kwargs": {"a": [{"b": np.zeros(2)}]}},
            "env_kwargs.a.b is a ndarray, but a config file can",
        ),
        ({"env_kwargs": {"map": Path("x")}}, "env_kwargs.map is a PosixPath, but a config file"),
        (
            {"env_kwargs": {"wrappers": {"reward": {"scal": 1}}}},
            "'scal' in wrappers.reward; did",
        ),
        ({"env_kwargs": {"wrappers": {"rewrd": {}}}}, "'rewrd' in wrappers; did you mean 'reward'"),
        (
            {"algo_kwargs": {"reward_clip_min": 1, "reward_clip_max": 0}},
            "clip_min = 1.0 must be below clip_max = 0.0",
        ),
        ({"learning_rate": 1e-3}, "belongs in algo_kwargs: use algo_kwargs={'learn"),
        ({"env_id": dict}, "env_id = <class 'dict'>: should be an id, since configs have only"),
        ({"env_id": lambda: 0}, "Pass an object as an argument: SAC(env), or train(config, env="),
    ],
)
def test_invalid_configs_raise_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(BASE | changes)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=re.escape(str(caught.value))):
        TrainConfig(**(BASE | changes))


def test_missing_key_error_contains_the_key() -> None:
    with pytest.raises(ConfigError, match="'total_timesteps' is missing"):
        make_config({"algo": "sac", "env_id": "Pendulum-v1"})


def test_python_values_are_converted_to_plain_values() -> None:
    """Training, evaluation and resuming pass the same values to the environment."""
    values = {"g": np.float64(5), "n": [np.int64(2), (True, np.bool_(False))], "t": {"a": 0.5}}
    changes = {
        "seed": np.int64(3),
        "output_dir": Path("some") / "where",
        "env_kwargs": values,
        "algo": "bc",
        "algo_kwargs": {
            "learning_rate": np.float64(1e-3),
            "dataset_kind": "npz",
            "dataset_path": Path("a.npz"),
        },
    }
    config = TrainConfig(**(BASE | changes)).resolved()
    assert (config.seed, config.output_dir) == (3, str(Path("some/where")))
    assert config.algo_kwargs["dataset_path"] == "a.npz"
    assert config.env_kwargs == {"g": 5.0, "n": [2, [True, False]], "t": {"a": 0.5}}
    assert make_config(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config


def test_values_that_a_file_cannot_contain_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="nested too deeply"):
        make_config(BASE | {"env_kwargs": {"a": deep}})
    with pytest.raises(ConfigError, match="has the key 1"):
        make_config({**BASE, 1: 2})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="algo = "):
        make_config(BASE | {"algo": ["sac"]})


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ("total_timesteps=150", "['total_timesteps=150']"),
        ({"seed": 3, "gamma": 0.9}, "['seed=3', 'gamma=0.9']"),
        ([3], "a list of key=value strings"),
        (None, "a list of key=value strings"),
    ],
)
def test_overrides_must_be_a_list_of_strings(overrides: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=r"^overrides = .* should be a list") as caught:
        TrainConfig.load("sac/pendulum", overrides)
    assert wanted in str(caught.value)


def test_overrides_with_short_keys() -> None:
    data: dict[str, Any] = dict(BASE)
    for text in (
        "seed=3",
        "batch_size=512",
        "learning_rate=1e-3",
        "total_timesteps=1e4",
        "hidden_sizes=[64, 64]",
        "early_stopping.patience=4",
        "algo_kwargs.gamma=0.9",
        "env_kwargs.max_episode_steps=50",
        "tags=[a, b]",
    ):
        apply_override(data, text)
    config = make_config(data)
    parts = config.parts
    assert (config.seed, config.total_timesteps, config.tags) == (3, 10_000, ("a", "b"))
    assert parts.algorithm.learning_rate == 1e-3
    assert parts.algorithm.hidden_sizes == (64, 64)
    assert parts.controls.early_stopping is not None
    assert parts.controls.early_stopping.patience == 4
    assert parts.env.make_kwargs == {"max_episode_steps": 50}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed", "write key=value"),
        ("=3", "write key=value"),
        ("sed=3", "did you mean 'seed'"),
        ("batch_sizes=3", "did you mean 'batch_size'"),
        ("activation=tanh", "write networks: {all: {activation: …}}"),
        ("seed.x=3", "is not a mapping"),
        ("seed=!!python/name:os.system", "not plain YAML"),
    ],
)
def test_bad_overrides(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        apply_override(BASE | {"seed": 0}, override)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "a: 1\na: 2",
        "- a\n- b",
        "just text",
        "a: [1",
        "1: 2",
        "\x00\x01",
        "[" * 10_000,
    ],
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert "\n" not in str(caught.value)


def test_missing_files_and_names() -> None:
    with pytest.raises(ConfigError, match=r"config file 'nowhere\.yaml' does not exist"):
        read_config("nowhere.yaml")
    with pytest.raises(ConfigError, match="did you mean 'sac/pendulum'"):
        read_config("sac/pendulm")


def test_fingerprint_ignores_only_output_dir_and_labels() -> None:
    config = make_config(BASE)
    moved = make_config(BASE | {"output_dir": "elsewhere", "tags": ["x"]})
    assert config.fingerprint() == moved.fingerprint()
    assert config.fingerprint() != make_config(BASE | {"seed": 1}).fingerprint()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 10**30}, "batch_size = .* less than or equal to 16777216"),
        ({"buffer_capacity": 10**14}, "buffer_capacity = .* less than or equal to 1000000000"),
        ({"hidden_sizes": [10**8]}, "hidden_sizes.* less than or equal to 65536"),
        ({"num_threads": 100_000}, "num_threads = 100000: .* less than or equal to 1024"),
    ],
)
def test_impossible_sizes_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_config(BASE | {"algo_kwargs": settings})


def test_control_callbacks_from_a_train_config() -> None:
    config = TrainConfig.load("sac/pendulum", ["early_stopping.patience=3"])
    (callback,) = build_control_callbacks(config)
    assert isinstance(callback, EarlyStoppingCallback)
    assert build_control_callbacks(TrainConfig.load("sac/pendulum")) == []


def test_load_accepts_a_mapping_and_does_not_change_it() -> None:
    data: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 10}
    data["algo_kwargs"] = {"batch_size": 8}
    before = deepcopy(data)
    config = TrainConfig.load(data, ["batch_size=16", "seed=3"])
    assert (config.algo_kwargs["batch_size"], config.seed, data) == (16, 3, before)
    assert TrainConfig.load(data) == make_config(data)


def test_early_stopping_is_listed_as_a_mapping() -> None:
    assert allowed_text(ControlsConfig.model_fields["early_stopping"]) == "a mapping or null"
