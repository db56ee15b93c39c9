"""The config of a run: a YAML file, overrides, and the typed parts that everything else reads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from rl_training.algorithms.config import AlgorithmConfig, CollectionConfig, MixingConfig
from rl_training.algorithms.finetuning_config import FinetuningConfig
from rl_training.algorithms.registry import REGISTRY, get_algorithm
from rl_training.boundary import json_codec
from rl_training.boundary.packaged_configs import config_names, packaged_config
from rl_training.boundary.reading import read_text
from rl_training.boundary.yaml_codec import parse_yaml
from rl_training.config_model import ConfigModel, Model, Trait, keys_with, sentence, validated
from rl_training.data.config import DataConfig
from rl_training.envs.factory import EnvConfig, WrappersConfig
from rl_training.envs.resolving import name_env, name_kwargs
from rl_training.errors import ConfigError, familiar, nearest
from rl_training.experiment.plain_values import env_id_of, listed, plain
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.control_config import ControlsConfig
from rl_training.text import shorten, shown
from rl_training.types import Mode

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_training.algorithms.base import Algorithm
    from rl_training.data import ReplayBuffer


class TrainConfig(ConfigModel):
    """A whole run. `algo_kwargs` holds the algorithm's keys and the controls."""

    algo: str
    """The algorithm's name."""
    env_id: str | None = None
    """A registered Gymnasium environment; null for recorded data alone."""
    seed: int = Field(default=0, ge=0)
    """All random streams derive from it."""
    total_timesteps: Annotated[int | None, Trait.MAY_CHANGE] = Field(default=None, gt=0, le=2**53)
    """Environment steps, or gradient updates where there are none."""
    output_dir: Annotated[str, Trait.MAY_CHANGE, Trait.LABEL] = Field(default="runs", min_length=1)
    """Where run folders are made."""
    device: Annotated[str, Trait.MAY_CHANGE] = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    num_envs: int = Field(default=1, gt=0, le=65_536)
    """Training environments stepped together."""
    eval_episodes: Annotated[int, Trait.MAY_CHANGE] = Field(default=10, ge=0)
    """Episodes of each evaluation."""
    checkpoint_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=10_000, ge=0)
    """Steps between checkpoints; the start, a new best and the end have one too."""
    log_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=1_000, gt=0)
    """Steps between lines of metrics."""
    tags: Annotated[tuple[str, ...], Trait.MAY_CHANGE, Trait.LABEL] = ()
    """Words that stay with the run."""
    algo_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The algorithm's hyper-parameters and the controls."""
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """`vectorization`, and what gymnasium.make takes."""

    if not TYPE_CHECKING:  # a type checker knows the fields

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise ConfigError(sentence(error, TrainConfig)) from None

    @model_validator(mode="before")
    @classmethod
    def _from_python(cls, data: Any) -> Any:
        """What a file can hold: NumPy's numbers and paths are taken too."""
        if not isinstance(data, Mapping):
            return data
        for level in (data, data.get("algo_kwargs")):
            if isinstance(level, Mapping):
                _check_dataset_path(level.get("dataset_path"))
        held: dict[str, Any] = {}
        for key, value in data.items():
            passed_on = key == "env_kwargs" and isinstance(value, Mapping)
            held[key] = plain(value, key, storable=passed_on)
        _check_env_id(held.get("env_id"))
        _check_level(held)
        kwargs = held.get("algo_kwargs")
        for place, key in ((held, "output_dir"), (kwargs, "dataset_path")):
            if isinstance(place, dict) and isinstance(place.get(key), os.PathLike):
                place[key] = os.fspath(place[key])
        return held

    @field_validator("output_dir")
    @classmethod
    def _is_a_folder_name(cls, output_dir: str) -> str:
        if any(len(part) > 2 and set(part) == {"."} for part in Path(output_dir).parts):
            raise ValueError("should not have a part of dots alone")
        return output_dir

    @model_validator(mode="after")
    def _parts_are_valid(self) -> Self:
        parts = self.parts
        if self.env_id is None and self.mode != "offline":
            raise ConfigError(
                "The key 'env_id' is missing: add an environment, such as env_id=Pendulum-v1."
            )
        if self.total_timesteps is None and parts.data.num_epochs is None:
            raise ConfigError(
                "The key 'total_timesteps' is missing: add the length of the run, such as "
                "total_timesteps=20000."
            )
        stopping = parts.controls.early_stopping
        plays = stopping is not None and stopping.metric != "eval_loss" and self.env_id is not None
        if plays and self.eval_episodes == 0:
            raise ConfigError("early_stopping needs evaluations: set eval_episodes above 0.")
        return self

    @cached_property
    def parts(self) -> ConfigParts:
        """The typed parts of `algo_kwargs` and `env_kwargs`, parsed once."""
        return ConfigParts.of(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, which has parts of its own."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("parts", None)
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        # Fine-tuning and HER make config classes on the fly, which pickle cannot find by name.
        state["__dict__"] = {k: v for k, v in state["__dict__"].items() if k != "parts"}
        return state

    @property
    def learner_class(self) -> type[Algorithm]:
        """The class of the run's learner."""
        return get_algorithm(self.algo).learner_class(self.algo_kwargs)

    @property
    def replay_class(self) -> type[ReplayBuffer]:
        """The class of the replay that the learner or the config chooses; the run must collect."""
        from rl_training.data.replays import REPLAYS

        settings, own = self.parts.algorithm, self.learner_class.replay_class
        assert isinstance(settings, CollectionConfig)
        if own is None:
            return REPLAYS[settings.replay_kind]
        if settings.replay_kind != "uniform":
            raise ConfigError(
                f"replay = {settings.replay_kind}: {self.algo} has a replay of its own; leave it "
                "out."
            )
        return own

    @property
    def finetunes(self) -> bool:
        """Whether the run continues from another run's checkpoint."""
        return isinstance(self.parts.algorithm, FinetuningConfig)

    @property
    def mode(self) -> Mode:
        """Where the run's data comes from."""
        return "offline_to_online" if self.finetunes else get_algorithm(self.algo).mode

    @property
    def first_step(self) -> int:
        """The step that the run's count begins with: that of a fine-tuning's checkpoint, or 0."""
        settings = self.parts.algorithm
        return settings.first_step if isinstance(settings, MixingConfig) else 0

    @property
    def online_from(self) -> int:
        """The step at which a run from offline to online begins to collect; else 0."""
        settings = self.parts.algorithm
        return settings.online_from if isinstance(settings, MixingConfig) else 0

    @property
    def last_step(self) -> int:
        """The step at which the run ends: `total_timesteps` after collection began."""
        return self.online_from + self.budget

    @property
    def budget(self) -> int:
        """`total_timesteps` of a config that was checked: `num_epochs` is in it."""
        assert self.total_timesteps is not None
        return self.total_timesteps

    @classmethod
    def load(cls, source: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
        """A packaged config's name or a file, with ``key=value`` overrides."""
        data = read_config(source)
        apply_overrides(data, overrides)
        return make_config(data)

    def resolved(self) -> TrainConfig:
        """The same config with every default written out."""
        parts = self.parts
        kwargs: dict[str, Any] = {}
        for part in (parts.algorithm, parts.controls, parts.data):
            kwargs |= part.model_dump()
        if kwargs["schedule_horizon"] is None and self.total_timesteps is not None:
            pretraining = kwargs.get("offline_pretrain_updates", 0)
            kwargs["schedule_horizon"] = pretraining + self.total_timesteps
        return self.model_copy(update={"algo_kwargs": listed(kwargs)})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in ``config.yaml``."""
        return listed(self.model_dump())  # type: ignore[no-any-return]

    def fingerprint(self) -> str:
        """A short hash of everything that decides the result."""
        labels = keys_with(Trait.LABEL, TrainConfig)
        data = {k: v for k, v in self.to_dict().items() if k not in labels}
        return hashlib.sha256(json_codec.dumps(data)).hexdigest()[:16]


@dataclass(frozen=True)
class ConfigParts:
    """A config's typed parts: `algo_kwargs` divided by field name, and `env_kwargs`."""

    algorithm: AlgorithmConfig
    controls: ControlsConfig
    data: DataConfig
    env: EnvConfig
    rewards: RewardTransformConfig
    """What is done to every reward, recorded or new, by whichever of the two keys it is given."""

    @classmethod
    def of(cls, config: TrainConfig) -> ConfigParts:
        """Parse a config; an unknown key fails with the nearest valid one."""
        kwargs = config.algo_kwargs
        models = kwargs_models(config.algo, kwargs)
        known = kwargs_keys(config.algo, kwargs)
        for key in kwargs:
            if key in TrainConfig.model_fields:
                raise ConfigError(f"{shown(key)} is a top-level key: move it out of algo_kwargs.")
            if key not in known:
                raise ConfigError(unknown_key(key, config.algo, known))

        def part(model: type[Model]) -> Model:
            return validated(model, {k: v for k, v in kwargs.items() if k in model.model_fields})

        data, env = part(models[2]), validated(EnvConfig, config.env_kwargs)
        wrapped, keyed = env.wrappers.reward, data.rewards()
        if not wrapped.is_identity and not keyed.is_identity and wrapped != keyed:
            raise ConfigError(
                f"env_kwargs.wrappers.reward ({wrapped}) and the reward_* keys ({keyed}) differ: "
                "give one of them."
            )
        return cls(
            algorithm=part(models[0]),
            controls=part(models[1]),
            data=data,
            env=env,
            rewards=keyed if wrapped.is_identity else wrapped,
        )

    @property
    def training_env(self) -> EnvConfig:
        """The training environments' settings, with the rewards that the learner sees."""
        return self.env.model_copy(update={"wrappers": WrappersConfig(reward=self.rewards)})


def kwargs_models(
    algo: str, kwargs: Mapping[str, Any] | None = None
) -> tuple[type[AlgorithmConfig], type[ControlsConfig], type[DataConfig]]:
    """The models whose fields are the keys of `algo_kwargs`."""
    return get_algorithm(algo).config_class(kwargs), ControlsConfig, DataConfig


def kwargs_keys(algo: str, kwargs: Mapping[str, Any] | None = None) -> list[str]:
    """The keys of `algo_kwargs`, those of the algorithm first."""
    return [name for model in kwargs_models(algo, kwargs) for name in model.model_fields]


def unknown_key(key: str, algo: str, known: Sequence[str]) -> str:
    """Return the error for an unknown key: which algorithms have it, or the nearest valid key."""
    names = [*TrainConfig.model_fields, *known]
    others = [
        entry.short_name for entry in REGISTRY.values() if key in entry.config_class().model_fields
    ]
    if others and not familiar(key, names):
        owners = ", ".join(others[:4]) + (", …" if len(others) > 4 else "")
        name = get_algorithm(algo).short_name
        return f"{key!r} is not an option of {name}; it is an option of {owners}."
    return f"Unknown key {shown(key)} for {algo}{nearest(key, names)}"


def make_config(data: Mapping[str, Any]) -> TrainConfig:
    """Validate a mapping; errors are one sentence."""
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"The config has the key {shown(key)}, but keys should be strings.")
    return validated(TrainConfig, data)


def saved_config(data: Mapping[str, Any]) -> TrainConfig:
    """The config that a run folder or a checkpoint holds.

    `dataset_download` is off: a file starts no download. A resume may switch it on again.
    """
    config = make_config(data)
    if not config.parts.data.dataset_download:
        return config
    return config.model_copy(
        update={"algo_kwargs": config.algo_kwargs | {"dataset_download": False}}
    )


# --- Values that come from Python -----------------------------------------------


def _check_level(data: Mapping[str, Any]) -> None:
    """Refuse an algorithm's key that is written beside `algo_kwargs`, and say where it belongs."""
    kwargs = data.get("algo_kwargs") or {}
    algo = data.get("algo")
    if not isinstance(algo, str) or algo not in REGISTRY or not isinstance(kwargs, Mapping):
        return
    known = kwargs_keys(algo, kwargs)
    for key in data:
        if key in known:
            raise ConfigError(
                f"{key} = {shown(data[key])} is a key of algo_kwargs: write it there, "
                f"algo_kwargs={{{key!r}: {shown(data[key])}}}."
            )
        if key not in TrainConfig.model_fields and familiar(key, known):
            raise ConfigError(unknown_key(key, algo, known))


def _check_env_id(env_id: Any) -> None:
    if env_id is None or isinstance(env_id, str):
        return
    register = (
        "register it with gymnasium.register(id='Mine-v0', entry_point=MyEnv) and pass 'Mine-v0'"
    )
    known = env_id_of(env_id)
    if known is not None:
        register = f"pass env_id={known!r}, or, if the environment is wrapped, {register}"
    raise ConfigError(
        f"env_id = {shown(env_id)}: should be the id of a registered environment, not an object. "
        f"{register[0].upper()}{register[1:]}."
    )


def _check_dataset_path(path: Any) -> None:
    if path is None or isinstance(path, str | os.PathLike):
        return
    raise ConfigError(
        f"dataset_path is of type {type(path).__name__}, but should be the path of a file. Save "
        "the arrays first, with np.savez('data.npz', observations=…, actions=…, rewards=…, "
        "terminals=…), then pass dataset_kind='npz' and dataset_path='data.npz' (docs/datasets.md)."
    )


def plain_env_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """`env_kwargs` that are given beside a config, as a config would hold them."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ConfigError(f"env_kwargs = {shown(kwargs)}: should be a mapping of names to values.")
    return dict(plain(kwargs or {}, "env_kwargs", storable=True))


# --- Files and overrides ------------------------------------------------------


def config_text(name: str) -> str:
    """A packaged config's text."""
    if name not in config_names():
        raise ConfigError(f"No packaged config {shown(name)}{nearest(name, config_names())}")
    return packaged_config(name)


def read_config(source: str | Path) -> dict[str, Any]:
    """The mapping in a packaged config or a file."""
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"config = {shown(source)}: should be a TrainConfig, a mapping, or a config's name or "
            "file."
        )
    path, name = Path(source), str(source)
    try:
        if name in config_names():
            text = config_text(name)
        elif path.is_file():
            text = read_text(path, follow_links=True)
        elif path.suffix in (".yaml", ".yml") or path.is_absolute():
            raise ConfigError(f"There is no config file {shown(name)}.")
        else:
            raise ConfigError(
                f"{shown(name)} is neither a file nor a packaged config"
                f"{nearest(name, config_names())}"
            )
    except OSError as error:
        raise ConfigError(f"{shown(name)} cannot be read ({error.strerror}).") from None
    data = parse_yaml(text, name)
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{shorten(name)} must hold a mapping of keys to values.")
    return data


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each ``key=value`` of a list."""
    for override in check_overrides(overrides):
        apply_override(data, override)


def check_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides as a list; a single text or a mapping is refused with the list to write."""
    if isinstance(overrides, Mapping):
        wanted = [f"{key}={value}" for key, value in overrides.items()]
    elif isinstance(overrides, Sequence) and not isinstance(overrides, str):
        if all(isinstance(override, str) for override in overrides):
            return list(overrides)
        wanted = ["total_timesteps=150"]
    else:
        wanted = [overrides if isinstance(overrides, str) else "total_timesteps=150"]
    raise ConfigError(
        f"overrides = {shown(overrides)}: should be a list of texts key=value, such as "
        f"{shown(wanted)}."
    )


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one ``key=value`` in a config's mapping; a short key finds its place."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{shown(override)} is not an override: write key=value.")
    path = key.split(".")
    if path[0] not in TrainConfig.model_fields:
        algo = str(data.get("algo", ""))
        names = kwargs_keys(algo, data.get("algo_kwargs"))
        if path[0] not in names:
            raise ConfigError(unknown_key(path[0], algo, names))
        path = ["algo_kwargs", *path]
    target: Any = data
    for part in path[:-1]:
        if target.get(part) is None:
            target[part] = {}
        target = target[part]
        if not isinstance(target, dict):
            raise ConfigError(f"{shown(key)} cannot be set: {shown(part)} holds a single value.")
    target[path[-1]] = parse_yaml(text, override)


def parse_env_kwargs(texts: Sequence[str]) -> dict[str, Any]:
    """The mapping that several ``KEY=VALUE`` mean."""
    data: dict[str, Any] = {"env_kwargs": {}}
    for text in texts:
        apply_override(data, f"env_kwargs.{text}")
    return dict(data["env_kwargs"])


def name_overrides(env_id: str | None, overrides: Sequence[str]) -> None:
    """Record the environment, or those of its arguments, that overrides name."""
    for override in check_overrides(overrides):
        key = override.partition("=")[0]
        top, *path = key.split(".")
        if top == "env_id":
            name_env(env_id)
        if top == "env_kwargs":
            given: Any = {}
            apply_override(given, override)
            for part in (top, *path[:-1]):
                given = given[part]
            name_kwargs(env_id, given or {}, *path[:-1])
