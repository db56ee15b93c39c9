"""The config of a run: YAML files, overrides and typed parts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
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
from rl_training.data.action_units import within_bounds
from rl_training.data.config import DataConfig
from rl_training.envs.factory import EnvConfig, WrappersConfig
from rl_training.envs.resolving import name_env, name_kwargs
from rl_training.errors import ConfigError, nearest, suggest_key
from rl_training.experiment.plain_values import plain, tuples_to_lists
from rl_training.experiment.seeds import as_seeds
from rl_training.rewards import RewardTransformConfig
from rl_training.runtime.control_config import ControlsConfig
from rl_training.runtime.loggers.config import LoggingConfig, name_destinations
from rl_training.text import shorten, shown
from rl_training.types import EnvSpec, Mode

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_training.algorithms.base import Algorithm
    from rl_training.data import ReplayBuffer


class TrainConfig(ConfigModel):
    """Config of a run. `algo_kwargs` has the keys of the algorithm and the controls."""

    algo: str
    """Name of the algorithm."""
    env_id: str | None = None
    """Id of a registered Gymnasium environment; null to train on recorded data only."""
    seed: int = Field(default=0, ge=0)
    """Seed of all random streams."""
    seeds: tuple[int, ...] | None = None
    """Instead of `seed`: several seeds, each of which is a run; a count or a list."""
    total_timesteps: Annotated[int | None, Trait.MAY_CHANGE] = Field(default=None, gt=0, le=2**53)
    """Number of environment steps, or of gradient updates for offline algorithms."""
    output_dir: Annotated[str, Trait.MAY_CHANGE, Trait.LABEL] = Field(default="runs", min_length=1)
    """Folder in which run folders are created."""
    device: Annotated[str, Trait.MAY_CHANGE] = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    num_envs: int = Field(default=1, gt=0, le=65_536)
    """Number of training environments, which are stepped together."""
    eval_episodes: Annotated[int, Trait.MAY_CHANGE] = Field(default=10, ge=0)
    """Number of episodes of each evaluation."""
    checkpoint_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=10_000, ge=0)
    """Steps between checkpoints; the start, a new best and the end are always saved."""
    log_interval: Annotated[int, Trait.MAY_CHANGE] = Field(default=1_000, gt=0)
    """Steps between log entries."""
    tags: Annotated[tuple[str, ...], Trait.MAY_CHANGE, Trait.LABEL] = ()
    """Labels of the run."""
    logging: Annotated[LoggingConfig, Trait.MAY_CHANGE, Trait.LABEL] = LoggingConfig()
    """Destinations of metrics in addition to metrics.jsonl."""
    algo_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Hyperparameters of the algorithm, and controls."""
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """`vectorization`, `wrappers`, and arguments of gymnasium.make."""

    if not TYPE_CHECKING:  # type checkers use the fields

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise ConfigError(sentence(error, TrainConfig)) from None

    @model_validator(mode="before")
    @classmethod
    def _from_python(cls, data: Any) -> Any:
        """Convert NumPy scalars and paths to values that a file can contain."""
        if not isinstance(data, Mapping):
            return data
        for level in (data, data.get("algo_kwargs")):
            if isinstance(level, Mapping):
                _check_dataset_path(level.get("dataset_path"))
        held: dict[str, Any] = {}
        for key, value in data.items():
            passed_on = key == "env_kwargs" and isinstance(value, Mapping)
            held[key] = plain(value, key, storable=passed_on)
        _move_keys(held)
        if held.get("seeds") is None:
            held.pop("seeds", None)
        elif "seed" in held:
            raise ConfigError(
                f"seed = {shown(held['seed'])} and seeds = {shown(held['seeds'])}: set only one of "
                "them."
            )
        _check_env_id(held.get("env_id"))
        _check_level(held)
        kwargs = held.get("algo_kwargs")
        for place, key in ((held, "output_dir"), (kwargs, "dataset_path")):
            if isinstance(place, dict) and isinstance(place.get(key), os.PathLike):
                place[key] = os.fspath(place[key])
        return held

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, seeds: Any) -> Any:
        return None if seeds is None else as_seeds(seeds)

    @field_validator("output_dir")
    @classmethod
    def _check_output_dir(cls, output_dir: str) -> str:
        if any(len(part) > 2 and set(part) == {"."} for part in Path(output_dir).parts):
            raise ValueError("should not have a part that consists of dots only")
        return output_dir

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
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
            raise ConfigError("early_stopping requires evaluations: set eval_episodes above 0.")
        return self

    @cached_property
    def parts(self) -> ConfigParts:
        """Typed parts of `algo_kwargs` and `env_kwargs`, parsed once."""
        return ConfigParts.of(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with updated values, whose parts are parsed again."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("parts", None)
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        # Pickle cannot find the config classes that fine-tuning and HER create dynamically.
        state["__dict__"] = {k: v for k, v in state["__dict__"].items() if k != "parts"}
        return state

    @property
    def learner_class(self) -> type[Algorithm]:
        """Class of the run's learner."""
        return get_algorithm(self.algo).learner_class(self.algo_kwargs)

    @property
    def replay_class(self) -> type[ReplayBuffer]:
        """Replay class of a run that collects data, specified by the learner or by the config."""
        from rl_training.data.replays import REPLAYS

        settings, own = self.parts.algorithm, self.learner_class.replay_class
        assert isinstance(settings, CollectionConfig)
        if own is None:
            return REPLAYS[settings.replay_kind]
        if settings.replay_kind != "uniform":
            raise ConfigError(
                f"replay = {settings.replay_kind}: {self.algo} uses its own replay, so leave it "
                "out."
            )
        return own

    @property
    def finetunes(self) -> bool:
        """Whether the run continues from another run's checkpoint."""
        return isinstance(self.parts.algorithm, FinetuningConfig)

    @property
    def mode(self) -> Mode:
        """Training mode: online, offline or offline to online."""
        return "offline_to_online" if self.finetunes else get_algorithm(self.algo).mode

    @property
    def first_step(self) -> int:
        """First step of the run: the step of the source checkpoint in fine-tuning, otherwise 0."""
        settings = self.parts.algorithm
        return settings.first_step if isinstance(settings, MixingConfig) else 0

    @property
    def online_from(self) -> int:
        """Step at which an offline-to-online run starts to collect; 0 for other runs."""
        settings = self.parts.algorithm
        return settings.online_from if isinstance(settings, MixingConfig) else 0

    @property
    def last_step(self) -> int:
        """Step at which the run ends: `total_timesteps` after the start of collection."""
        return self.online_from + self.budget

    @property
    def budget(self) -> int:
        """`total_timesteps` of a checked config, with `num_epochs` already converted."""
        assert self.total_timesteps is not None
        return self.total_timesteps

    @classmethod
    def load(
        cls, source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()
    ) -> TrainConfig:
        """Load a packaged config by its name, a file or a mapping, and apply overrides.

        ``overrides`` is a list of ``key=value`` strings. The given mapping is not changed.
        """
        data = deepcopy(dict(source)) if isinstance(source, Mapping) else read_config(source)
        apply_overrides(data, overrides)
        return make_config(data)

    def resolved(self) -> TrainConfig:
        """Return the config with every default filled in."""
        parts = self.parts
        kwargs: dict[str, Any] = {}
        for part in (parts.algorithm, parts.controls, parts.data):
            kwargs |= part.model_dump()
        if kwargs["schedule_horizon"] is None and self.total_timesteps is not None:
            pretraining = kwargs.get("offline_pretrain_updates", 0)
            kwargs["schedule_horizon"] = pretraining + self.total_timesteps
        return self.model_copy(update={"algo_kwargs": tuples_to_lists(kwargs)})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as in ``config.yaml``."""
        unused = "seeds" if self.seeds is None else "seed"
        data: dict[str, Any] = tuples_to_lists(self.model_dump(exclude={unused}))
        return data

    def fingerprint(self) -> str:
        """Return a short hash of everything that affects the result."""
        labels = keys_with(Trait.LABEL, TrainConfig)
        data = {k: v for k, v in self.to_dict().items() if k not in labels}
        return hashlib.sha256(json_codec.dumps(data)).hexdigest()[:16]


@dataclass(frozen=True)
class ConfigParts:
    """Typed parts of a config: `algo_kwargs` split by field name, and `env_kwargs`."""

    algorithm: AlgorithmConfig
    controls: ControlsConfig
    data: DataConfig
    env: EnvConfig
    rewards: RewardTransformConfig
    """Transform of all rewards, recorded and new, set by either of the two keys."""

    @classmethod
    def of(cls, config: TrainConfig) -> ConfigParts:
        """Parse a config; the error for an unknown key suggests the nearest valid one."""
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

        data = part(models[2]).for_env(config.env_id)
        env = validated(EnvConfig, config.env_kwargs)
        wrapped, keyed = env.wrappers.reward, data.rewards()
        if not wrapped.is_identity and not keyed.is_identity and wrapped != keyed:
            raise ConfigError(
                f"env_kwargs.wrappers.reward ({wrapped}) and the reward_* keys ({keyed}) differ: "
                "set only one of them."
            )
        return cls(
            algorithm=part(models[0]),
            controls=part(models[1]),
            data=data,
            env=env,
            rewards=keyed if wrapped.is_identity else wrapped,
        )

    def narrowed(self, spec: EnvSpec) -> EnvSpec:
        """Return the spec of an environment whose actions are limited by `action_range`."""
        chosen = self.data.action_range
        return spec if isinstance(chosen, str) else within_bounds(spec, *chosen, "this run")

    @property
    def training_env(self) -> EnvConfig:
        """Settings of the training environments, with the reward transform of the learner."""
        return self.env.model_copy(update={"wrappers": WrappersConfig(reward=self.rewards)})


def kwargs_models(
    algo: str, kwargs: Mapping[str, Any] | None = None
) -> tuple[type[AlgorithmConfig], type[ControlsConfig], type[DataConfig]]:
    """Return the models whose fields are the keys of `algo_kwargs`."""
    return get_algorithm(algo).config_class(kwargs), ControlsConfig, DataConfig


def kwargs_keys(algo: str, kwargs: Mapping[str, Any] | None = None) -> list[str]:
    """Return the keys of `algo_kwargs`, with those of the algorithm first."""
    return [name for model in kwargs_models(algo, kwargs) for name in model.model_fields]


def unknown_key(key: str, algo: str, known: Sequence[str]) -> str:
    """Return the error for an unknown key: which algorithms have it, or the nearest valid key."""
    names = [*TrainConfig.model_fields, *known]
    others = [
        entry.short_name for entry in REGISTRY.values() if key in entry.config_class().model_fields
    ]
    if others and not suggest_key(key, names):
        owners = ", ".join(others[:4]) + (" and others" if len(others) > 4 else "")
        name = get_algorithm(algo).short_name
        return f"{key!r} is not an option of {name}; it is an option of {owners}."
    return f"Unknown key {shown(key)} for {algo}{nearest(key, names)}"


def make_config(data: Mapping[str, Any]) -> TrainConfig:
    """Validate a mapping and return the config."""
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"The config has the key {shown(key)}, but keys should be strings.")
    return validated(TrainConfig, data)


def saved_config(data: Mapping[str, Any]) -> TrainConfig:
    """Return the config of a run folder or a checkpoint.

    `dataset_download` is set to false, so that opening a run does not start a download. It can be
    enabled again when resuming.
    """
    config = make_config(data)
    if not config.parts.data.dataset_download:
        return config
    return config.model_copy(
        update={"algo_kwargs": config.algo_kwargs | {"dataset_download": False}}
    )


# --- Values passed from Python --------------------------------------------------


def _check_level(data: Mapping[str, Any]) -> None:
    """Reject a top-level key that belongs in `algo_kwargs`."""
    kwargs = data.get("algo_kwargs") or {}
    algo = data.get("algo")
    if not isinstance(algo, str) or algo not in REGISTRY or not isinstance(kwargs, Mapping):
        return
    known = kwargs_keys(algo, kwargs)
    for key in data:
        if key in known:
            raise ConfigError(
                f"{key} = {shown(data[key])} belongs in algo_kwargs: use "
                f"algo_kwargs={{{key!r}: {shown(data[key])}}}."
            )
        if key not in TrainConfig.model_fields and suggest_key(key, known):
            raise ConfigError(unknown_key(key, algo, known))


MOVED_KEYS = {"tensorboard": "logging"}
"""Keys that `algo_kwargs` had in earlier versions, and the mapping that has them now."""


def _move_keys(data: dict[str, Any]) -> None:
    """Move keys of earlier versions in place, so that old configs and runs stay readable."""
    kwargs = data.get("algo_kwargs")
    for key, place in MOVED_KEYS.items():
        if not isinstance(kwargs, dict) or key not in kwargs:
            continue
        moved, settings = kwargs.pop(key), data.get(place)
        if settings is not None and not isinstance(settings, dict):
            continue  # reported as an invalid value
        if settings is not None and settings.get(key, moved) != moved:
            raise ConfigError(
                f"{key} = {shown(moved)} contradicts {place}.{key} = {shown(settings[key])}: set "
                "only one of them."
            )
        data[place] = {**(settings or {}), key: moved}


def _check_env_id(env_id: Any) -> None:
    if env_id is not None and not isinstance(env_id, str):
        raise ConfigError(
            f"env_id = {shown(env_id)}: should be an id, since configs have only plain values. "
            "Pass an object as an argument: SAC(env), or train(config, env=env)."
        )


def _check_dataset_path(path: Any) -> None:
    if path is None or isinstance(path, str | os.PathLike):
        return
    raise ConfigError(
        f"dataset_path is of type {type(path).__name__}, but should be a path: pass arrays and "
        "dataset objects as dataset=… instead (docs/datasets.md)."
    )


def plain_env_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `env_kwargs` that were passed separately, as plain values."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ConfigError(f"env_kwargs = {shown(kwargs)}: should be a mapping of names to values.")
    return dict(plain(kwargs or {}, "env_kwargs", storable=True))


# --- Files and overrides ------------------------------------------------------


def config_text(name: str) -> str:
    """Return the text of a packaged config."""
    if name not in config_names():
        raise ConfigError(
            f"There is no packaged config {shown(name)}{nearest(name, config_names())}"
        )
    return packaged_config(name)


def read_config(source: str | Path) -> dict[str, Any]:
    """Return the mapping in a packaged config or a file."""
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"config = {shown(source)}: should be a TrainConfig, a mapping, a file, or the name "
            "of a packaged config."
        )
    path, name = Path(source), str(source)
    try:
        if name in config_names():
            text = config_text(name)
        elif path.is_file():
            text = read_text(path, follow_links=True)
        elif path.suffix in (".yaml", ".yml") or path.is_absolute():
            raise ConfigError(f"The config file {shown(name)} does not exist.")
        else:
            raise ConfigError(
                f"{shown(name)} is neither a file nor a packaged config"
                f"{nearest(name, config_names())}"
            )
    except OSError as error:
        raise ConfigError(f"{shown(name)} cannot be read ({error.strerror}).") from None
    data = parse_yaml(text, name)
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{shorten(name)} should contain a mapping of keys to values.")
    return data


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply a list of ``key=value`` overrides; a new dataset replaces the keys of the old one."""
    for override in check_overrides(overrides):
        apply_override(data, override)
    given = {override_key(override) for override in overrides}
    replace_dataset(data, given)
    replace_seed(data, given)


def replace_seed(data: dict[str, Any], given: Collection[str]) -> None:
    """Remove `seed` if the keys ``given`` have set `seeds`, or the reverse."""
    for key, other in (("seed", "seeds"), ("seeds", "seed")):
        if key in given and other not in given:
            data.pop(other, None)


def replace_dataset(data: dict[str, Any], given: Collection[str]) -> None:
    """Remove the keys of the old dataset if the keys ``given`` have set another one."""
    kwargs, given = data.get("algo_kwargs"), set(given)
    places = given.intersection(("dataset_path", "dataset_id"))
    if isinstance(kwargs, dict) and any(kwargs[place] for place in places):
        for key in {"dataset_path", "dataset_id", "dataset_kind"} - given:
            kwargs.pop(key, None)


def override_key(override: str) -> str:
    """Return the key of an override, without `algo_kwargs.`."""
    return override.partition("=")[0].removeprefix("algo_kwargs.")


def check_overrides(overrides: Sequence[str]) -> list[str]:
    """Return the overrides as a list; the error for a string or a mapping shows the right form."""
    if isinstance(overrides, Mapping):
        wanted = [f"{key}={value}" for key, value in overrides.items()]
    elif isinstance(overrides, Sequence) and not isinstance(overrides, str):
        if all(isinstance(override, str) for override in overrides):
            return list(overrides)
        wanted = ["total_timesteps=150"]
    else:
        wanted = [overrides if isinstance(overrides, str) else "total_timesteps=150"]
    raise ConfigError(
        f"overrides = {shown(overrides)}: should be a list of key=value strings, such as "
        f"{shown(wanted)}."
    )


def apply_override(data: dict[str, Any], override: str) -> None:
    """Apply one ``key=value`` override to a config's mapping; `algo_kwargs.` may be left out."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{shown(override)} is not an override: write key=value.")
    target, name = _find_key(data, key)
    target[name] = parse_yaml(text, override)


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a key of a config's mapping, written as in an override: `optimizers.actor.eps`."""
    target, name = _find_key(data, key)
    target[name] = value


def _find_key(data: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """Return the mapping that contains a key, which is created if necessary, and its last part."""
    path = key.split(".")
    if len(path) == 1 and path[0] in MOVED_KEYS:
        path = [MOVED_KEYS[key], key]
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
            raise ConfigError(f"{shown(key)} cannot be set: {shown(part)} is not a mapping.")
    return target, path[-1]


def parse_env_kwargs(texts: Sequence[str]) -> dict[str, Any]:
    """Parse a list of ``KEY=VALUE`` strings into a mapping."""
    data: dict[str, Any] = {"env_kwargs": {}}
    for text in texts:
        apply_override(data, f"env_kwargs.{text}")
    return dict(data["env_kwargs"])


def name_config(config: TrainConfig) -> None:
    """Record that the user specified the environment and the destinations of a config."""
    name_env(config.env_id, config.env_kwargs)
    name_destinations(config.logging)


def name_overrides(config: TrainConfig, overrides: Sequence[str]) -> None:
    """Record that the user specified the environment or a destination in the overrides.

    Only the overrides themselves count, since the rest of the config comes from a run folder.
    """
    env_id = config.env_id
    for override in check_overrides(overrides):
        key = override.partition("=")[0]
        top, *path = key.split(".")
        if top == "env_id":
            name_env(env_id)
        if top not in ("env_kwargs", "logging"):
            continue
        given: Any = {}
        apply_override(given, override)
        if top == "logging":
            name_destinations(validated(LoggingConfig, given[top] or {}))
        else:
            for part in (top, *path[:-1]):
                given = given[part]
            name_kwargs(env_id, given or {}, *path[:-1])
