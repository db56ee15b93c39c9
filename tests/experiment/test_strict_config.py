"""Config values: exact types, valid ranges and bounded error messages."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rl_training.algorithms.config import OptimizerConfig
from rl_training.algorithms.her import hindsight_config
from rl_training.algorithms.registry import REGISTRY, HindsightEntry, get_algorithm
from rl_training.api import train
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.config_model import validated
from rl_training.data.config import DataConfig
from rl_training.errors import ConfigError
from rl_training.experiment.config import (
    TrainConfig,
    apply_override,
    kwargs_models,
    make_config,
)
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.callbacks import EarlyStoppingConfig
from rl_training.runtime.control_config import ControlsConfig
from rl_training.text import printable
from tests.faults.zygote import shared_zygote

BASE: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 100}
LONGEST = 400
"""Largest length of an error message about any value."""

NO_NUMBERS = (True, False, "16", "1e-3", "0", "", b"16", [1], {"a": 1}, datetime.date(2024, 1, 1))
NO_BOOLEANS = (0, 1, 1.0, "true", "yes", "1", "", b"1", [True])


def refusal(call: Callable[[], Any]) -> str:
    """Return the error message, which must be one bounded, printable line."""
    with pytest.raises(ConfigError) as caught:
        call()
    text = str(caught.value)
    assert len(text) <= LONGEST
    assert printable(text, keep="") == text
    return text


def config_models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Return every config class of the package, including fine-tuning and hindsight."""
    yield "train", TrainConfig
    models = ControlsConfig, DataConfig, EarlyStoppingConfig, RewardTransformConfig
    for model in (*models, OptimizerConfig):
        yield model.__name__, model
    for entry in REGISTRY.values():
        yield entry.name, entry.config_class()
        if entry.mode == "offline":
            yield f"finetuned {entry.name}", entry.config_class({"finetuned_step": 0})
    for name in HindsightEntry.bases():
        yield f"her {name}", hindsight_config(get_algorithm(name).config_class())


def leaves(annotation: Any) -> set[Any]:
    """Return the scalar types of an annotation, excluding those inside tuples."""
    origin = get_origin(annotation)
    if annotation in (int, float, bool, str):
        return {annotation}
    if origin in (tuple, dict, Literal, None):
        return set()
    return {leaf for option in get_args(annotation) for leaf in leaves(option)}


def item_type(annotation: Any) -> Any:
    """Return the item type of a tuple, if the annotation contains one."""
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return get_args(item)[0] if get_origin(item) else item
    found = (item_type(option) for option in get_args(annotation))
    return next((item for item in found if item), None)


@pytest.mark.parametrize(("name", "model"), [pytest.param(n, m, id=n) for n, m in config_models()])
def test_values_must_have_the_declared_types(name: str, model: type[BaseModel]) -> None:
    base = BASE if model is TrainConfig else {}
    if name.startswith("finetuned"):
        base = {"finetuned_step": 0}
    checked = 0
    for key, field in model.model_fields.items():
        if get_origin(field.annotation) is dict:
            continue  # its keys belong to other classes
        kinds, inner = leaves(field.annotation), item_type(field.annotation)
        wrong: list[Any] = []
        if kinds & {int, float}:
            wrong = [value for value in NO_NUMBERS if inner is None or not isinstance(value, list)]
        elif kinds == {bool}:
            wrong = [*NO_BOOLEANS]
        elif kinds == {str}:
            wrong = [1, True, 0.5, b"x", ["x"], {"x": 1}]
        for value in wrong:
            text = refusal(lambda: validated(model, base | {key: value}))  # noqa: B023
            assert text.startswith(f"{key} = {value!r}: should be")
        first = 0.5 if inner is float else 1
        for value in (True, "16", b"1") if inner in (int, float) else ():
            text = refusal(lambda: validated(model, base | {key: [first, value]}))  # noqa: B023
            whole = tuple(f"{key} = {items}: sh" for items in ((first, value), [first, value]))
            assert text.startswith((f"{key}.1 = {value!r}: should", *whole))
        checked += len(wrong)
    assert checked >= 10


def override(text: str) -> TrainConfig:
    data = {**BASE, "algo_kwargs": {"early_stopping": {"patience": 1}}}
    apply_override(data, text)
    return make_config(data)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch_size=true", "batch_size = True: should be a valid integer."),
        ("batch_size='16'", "batch_size = '16': should be a valid integer."),
        ("seed=true", "seed = True: should be a valid integer."),
        ("num_envs='2'", "num_envs = '2': should be a valid integer."),
        ("learning_rate=true", "learning_rate = True: should be a valid number."),
        ("learning_rate='1e-3'", "learning_rate = '1e-3': should be a valid number."),
        ("tensorboard=1", "tensorboard = 1: should be true or false."),
        ("tensorboard='true'", "tensorboard = 'true': should be true or false."),
        ("hidden_sizes=[64, true]", "hidden_sizes.1 = True: should be a valid integer."),
        ("hidden_sizes=['64']", "hidden_sizes.0 = '64': should be a valid integer."),
        ("alpha=true", "alpha = True: should be a valid number or 'auto'."),
        ("early_stopping.patience=true", "early_stopping.patience = True: should be a valid int"),
        (
            "env_kwargs.wrappers.reward.scale='2'",
            "wrappers.reward.scale = '2': should be a valid number.",
        ),
        ("tags=[2024]", "tags.0 = 2024: should be text."),
        ("batch_size=16.5", "batch_size = 16.5: should be a valid integer."),
        ("learning_rate=1e300", "learning_rate = 1e+300: should be less than or equal to 10."),
        ("learning_rate=11", "learning_rate = 11: should be less than or equal to 10."),
        (
            "reward_scale=1e300",
            "reward_scale = 1e+300: should be 0 or have a magnitude between 1.2e-38 and 3.4e+38",
        ),
        (
            "learning_rate=1e-300",
            "learning_rate = 1e-300: should be 0 or have a magnitude between 1.2e-38 and",
        ),
        (
            "alpha=1e40",
            "alpha = 1e+40: should be 0 or have a magnitude between 1.2e-38 and 3.4e+38",
        ),
        (
            "early_stopping.target_value=-1e39",
            "target_value = -1e+39: should be 0 or have a magnitude",
        ),
        ("seed=1e60", "should have at most 38 digits"),
        ("num_envs=1e6", "num_envs = 1000000: should be less than or equal to 65536."),
        ("hidden_sizes=[]", "hidden_sizes = (): "),
        (
            "output_dir='...'",
            "output_dir = '...': should not have a part that consists of dots only.",
        ),
        ("output_dir=runs/..../x", "should not have a part that consists of dots only"),
    ],
)
def test_invalid_values_raise_one_sentence(text: str, sentence: str) -> None:
    assert sentence in refusal(lambda: override(text))


def test_yaml_forms_are_converted() -> None:
    data = yaml.safe_load("{batch_size: 64, hidden_sizes: [32, 32], reward_scale: 2}")
    data |= {"learning_starts": 1e3, "buffer_capacity": 1e5, "early_stopping": {"patience": 3.0}}
    config = make_config(BASE | {"total_timesteps": 1e5, "tags": ["a"], "algo_kwargs": data})
    resolved = config.resolved()
    assert (config.total_timesteps, config.tags) == (100_000, ("a",))
    for key, value in {"learning_starts": 1_000, "buffer_capacity": 100_000}.items():
        assert resolved.algo_kwargs[key] == value
        assert type(resolved.algo_kwargs[key]) is int
    assert resolved.algo_kwargs["hidden_sizes"] == [32, 32]
    assert type(resolved.algo_kwargs["reward_scale"]) is float
    assert resolved.algo_kwargs["early_stopping"]["patience"] == 3
    assert make_config(yaml.safe_load(yaml.safe_dump(resolved.to_dict()))) == resolved


def test_env_kwargs_are_passed_through() -> None:
    kwargs = {"flag": "true", "count": "16", "on": 1, "range": [0.7, math.inf], "text": "a\nb"}
    assert make_config(BASE | {"env_kwargs": kwargs}).env_kwargs == kwargs
    assert "env_kwargs.x = nan" in refusal(
        lambda: make_config(BASE | {"env_kwargs": {"x": math.nan}})
    )


SELF: dict[str, Any] = {}
SELF["again"] = SELF
RING: list[Any] = []
RING += [RING, RING, RING]
LONG = "x" * 5_000


class Unprintable:
    """Raises when it is printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


ODD = {
    **{"self": SELF, "ring": RING, "huge": 10**5_000, "long": LONG, "object": Unprintable()},
    **{"many": [LONG] * 50, "key": {LONG: LONG}, "inner": {"early_stopping": SELF, LONG: 1}},
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", ["seed", "algo", "num_envs", "algo_kwargs", LONG, "batch_size"])
def test_error_messages_are_bounded(key: str, kind: str) -> None:
    refusal(lambda: make_config(BASE | {key: ODD[kind]}))
    refusal(lambda: make_config(BASE | {"algo_kwargs": {key: ODD[kind]}}))


@pytest.mark.parametrize("kind", ["self", "ring", "huge", "object"])
def test_env_kwargs_error_messages_are_bounded(kind: str) -> None:
    refusal(lambda: make_config(BASE | {"env_kwargs": {"a": ODD[kind]}}))
    refusal(lambda: make_config(BASE | {"env_kwargs": {"wrappers": ODD[kind]}}))
    refusal(lambda: make_config(BASE | {"env_kwargs": {LONG: [ODD[kind]]}}))


def test_recursive_value_is_refused() -> None:
    text = refusal(lambda: train({**BASE, "algo_kwargs": {"early_stopping": SELF}}))
    assert (
        text
        == "algo_kwargs.early_stopping.again contains itself, which a config file cannot represent."
    )
    odd: list[Any] = [[SELF], RING, Unprintable(), LONG.encode(), 3]
    for value in odd:
        assert "should be a TrainConfig" in refusal(lambda: train(value))  # noqa: B023


@pytest.mark.parametrize("env_kwargs", [{"a\x85": 1}, {"a": "\x85"}, {"a": [{"b": "\x85"}]}])
def test_text_that_yaml_changes_is_refused(env_kwargs: dict[str, Any]) -> None:
    sentence = refusal(lambda: make_config({**BASE, "algo": "sac", "env_kwargs": env_kwargs}))
    assert "U+0085" in sentence


@pytest.mark.parametrize("character", ["\0", "\n", "\x1b", "\x85", "\ud800"])
@pytest.mark.parametrize("key", ["output_dir", "env_id", "tags", "device"])
def test_control_characters_are_refused(key: str, character: str) -> None:
    name = f"a{character}b"
    text = refusal(lambda: make_config(BASE | {key: [name] if key == "tags" else name}))
    assert text.startswith(key)
    assert text.endswith("should be text without control characters.")
    kwargs = {"dataset_kind": "npz", "dataset_path": f"a{character}.npz"}
    assert "control" in refusal(lambda: make_config(BASE | {"algo": "bc", "algo_kwargs": kwargs}))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("? [a, b]\n: 1", "a key should be a single value (line 1)"),
        ("? {a: b}\n: 1", "a key should be a single value (line 1)"),
        ("seed: 1" + "0" * 5_000, "a number should have at most 400 digits (line 1)"),
        ("seed: 0x" + "f" * 5_000, "a number should have at most 400 digits (line 1)"),
        ("seed: 1" + ":59" * 50_000, "a number should have at most 400 digits (line 1)"),
        ("seed: 1" + ":59" * 50_000 + ".5", "a number should have at most 400 digits (line 1)"),
        (
            "tags: [2024-01-01]",
            "'2024-01-01' is a value of type timestamp, which is not allowed; put",
        ),
        (
            "tags: [2024-99-99]",
            "'2024-99-99' is a value of type timestamp, which is not allowed; put",
        ),
        ("tags: !!binary aGVsbG8=", "'aGVsbG8=' is a value of type binary"),
        ("tags: !!set {a, b}", "there is a value of type set"),
        ("tags: !!omap [a: 1]", "there is a value of type omap"),
        ("tags: !!pairs [a: 1]", "there is a value of type pairs"),
        ("seed: !!int ''", "is not plain YAML"),
        ("seed: !!bool nope", "is not plain YAML"),
        ("seed: !!float ''", "is not plain YAML"),
        ("seed: !!timestamp nope", "is not plain YAML"),
        ("seed: !!python/name:os.system", "could not determine a constructor"),
        ("a: &x 1\nb: *x", "aliases (*name) are not allowed"),
        ("a: " + "[" * 5_000, "it is nested too deeply"),
        ("a: " + "{a: " * 5_000, "it is nested too deeply"),
        ("? " * 5_000, "it is nested too deeply"),
        (f"{LONG[:900]}: 1\n{LONG[:900]}: 2", "appears twice (line 2)"),
        (f"a: !{LONG} 1", "could not determine a constructor"),
        ("seed: .inf", "seed = inf: should be a valid integer"),
        ("seed: .nan", "seed = nan: should be a valid integer"),
        ("algo_kwargs: {gamma: .nan}", "gamma = nan: should be a finite number"),
        ("algo_kwargs: {gamma: .inf}", "gamma = inf: should be a finite number"),
        ("env_kwargs: {a: [.nan]}", "env_kwargs.a = nan: NaN is not allowed"),
        ("env_kwargs: {1: 2}", "env_kwargs has the key 1, but keys should be strings"),
        ("algo_kwargs: {null: 2}", "algo_kwargs has the key None, but keys should be strings"),
        ("algo_kwargs: {tau: " + "[" * 40 + "]" * 40 + "}", "algo_kwargs.tau is nested too deeply"),
        ("algo_kwargs: []", "algo_kwargs = []: should be a mapping"),
        ("env_kwargs: 3", "env_kwargs = 3: should be a mapping"),
    ],
)
def test_invalid_yaml_raises_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "odd.yaml"
    rest = "algo: sac\nenv_id: Pendulum-v1\ntotal_timesteps: 100\n"
    file.write_text(text + "\n" + (rest if text.startswith(("algo", "env", "seed: .")) else ""))
    assert sentence in refusal(lambda: TrainConfig.load(file))


@pytest.mark.parametrize(
    "override", ["seed=1" + "0" * 5_000, LONG, LONG + "=1", "seed." * 2_000 + "x=1", "tags=" + LONG]
)
def test_long_overrides_are_shortened(override: str) -> None:
    refusal(lambda: TrainConfig.load("sac/pendulum", [override]))
    refusal(lambda: TrainConfig.load("sac/pendulum", override))


@pytest.mark.parametrize("name", [LONG, LONG + ".yaml", "a\0b", "a\0b.yaml", "/" + LONG, ""])
def test_invalid_file_names(name: str) -> None:
    refusal(lambda: TrainConfig.load(name))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["output_dir=file"], "Error: output_dir 'file' cannot be written (File exists): choose"),
        (["output_dir=" + LONG], "cannot be written (File name too long): choose another"),
        (
            ["output_dir='...'"],
            "Error: output_dir = '...': should not have a part that consists of dots only.",
        ),
        (
            ['output_dir="a\\0b"'],
            "output_dir = 'a\\x00b': should be text without control",
        ),
        (["batch_size=true"], "Error: batch_size = True: should be a valid integer."),
        (["seed=1" + "0" * 5_000], "is not plain YAML: a number should have at most 400 digits"),
        (["learning_rate=1e300"], "Error: learning_rate = 1e+300: should be less than or equal to"),
        (["device=cuda:200"], "Error: device = 'cuda:200'"),
    ],
)
def test_command_line_exits_with_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "file").write_text("")
    done = shared_zygote().run("train", "--config", "sac/pendulum", *arguments, cwd=tmp_path)
    assert done.status == 2
    assert sentence in " ".join(done.err.split())
    assert len(done.err) < 600
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- Arbitrary input ----------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(20_000).map(lambda bits: 1 << bits)
    | st.sampled_from([10**20, 1e300, 1e-300, LONG, "auto", "true", "16", "\ud800", "\x85"])
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.sampled_from([datetime.date(2024, 1, 1), np.int64(3), np.float32(0.5), np.str_("a")])
    | st.sampled_from([{1, 2}, object(), np.zeros(2), Path("a"), RING, SELF, 1j, int])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def odd_configs(draw: st.DrawFn, algo: str) -> dict[str, Any]:
    """A config with arbitrary values for some keys."""
    names = [name for model in kwargs_models(algo) for name in model.model_fields]
    offline = REGISTRY[algo].mode != "online"
    inner = st.dictionaries(
        st.sampled_from([*EarlyStoppingConfig.model_fields, *RewardTransformConfig.model_fields]),
        ANYTHING,
        max_size=2,
    )
    data: dict[str, Any] = {**BASE, "algo": algo}
    data["algo_kwargs"] = {"dataset_kind": "npz", "dataset_path": "a.npz"} if offline else {}
    data["algo_kwargs"] |= draw(
        st.dictionaries(st.sampled_from(names), ANYTHING | inner, max_size=2)
    )
    data["env_kwargs"] = draw(
        st.dictionaries(
            st.sampled_from(["vectorization", "wrappers", "a"]) | st.text(max_size=3),
            ANYTHING | st.fixed_dictionaries({"reward": inner}),
            max_size=2,
        )
    )
    return data | draw(
        st.dictionaries(
            st.sampled_from([*TrainConfig.model_fields]) | st.text(max_size=3),
            ANYTHING,
            max_size=1,
        )
    )


@pytest.mark.parametrize("algo", REGISTRY)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_arbitrary_input_is_a_config_or_an_error(algo: str, data: st.DataObject) -> None:
    """An accepted config survives a round trip; anything else raises a ConfigError."""
    odd = data.draw(odd_configs(algo))
    try:
        config = make_config(odd)
    except ConfigError:
        refusal(lambda: make_config(odd))
        return
    resolved = config.resolved()
    text = yaml.safe_dump(resolved.to_dict(), sort_keys=False, allow_unicode=True)
    assert make_config(parse_yaml(text.encode().decode(), "it")) == resolved
    assert resolved.resolved() == resolved
