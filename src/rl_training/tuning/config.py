"""The description of a tuning, and the plan that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import Field, field_validator

from rl_training.config_model import LARGEST_INT
from rl_training.errors import ConfigError, nearest
from rl_training.experiment.config import (
    TrainConfig,
    make_config,
    name_config,
    read_config,
    saved_config,
)
from rl_training.experiment.config import set_key as set_config_key
from rl_training.experiment.plain_values import tuples_to_lists
from rl_training.experiment.seeds import as_seeds
from rl_training.study.config import (
    RESERVED_KEYS,
    ExecutionConfig,
    Settings,
    check_name,
    check_settings,
)
from rl_training.study.naming import task_name
from rl_training.study.planning import (
    CheckedKind,
    PlannedGroup,
    check_group,
    choose_resources,
    complete_group,
    make_run_config,
)
from rl_training.text import shown
from rl_training.tuning.objective import AGGREGATES, SCORES, Objective
from rl_training.tuning.optuna_memory import PRUNERS, SAMPLERS
from rl_training.tuning.space import (
    Params,
    Space,
    make_space,
    own_params,
    packaged_space,
    short_key,
)
from rl_training.tuning.trials import MAX_TRIALS, Trial, trial_label

EVALUATIONS = 10
"""Number of evaluations of a run, unless `eval_interval` is set for the tuning."""

BASE_LABEL = "base"
"""Label of the runs that validate the config that was tuned."""


_CHOICES: dict[str, Mapping[str, Any]] = {
    "objective": SCORES,
    "aggregate": AGGREGATES,
    "sampler": SAMPLERS,
    "pruner": PRUNERS,
}
"""The values of keys that select something by its name."""


class TuningConfig(ExecutionConfig):
    """A tuning: which config, what varies, and how trials are chosen and judged."""

    name: str | None = None
    """Name of the tuning; null is the name of its folder."""
    config: str | dict[str, Any]
    """The config that is tuned: a packaged config, a YAML file, or a mapping."""
    set: Settings = Field(default_factory=dict)
    """Config keys to change in every trial."""
    space: dict[str, Any] | None = None
    """What varies; null is the packaged space of the algorithm."""
    trials: int = Field(default=50, gt=0, le=MAX_TRIALS)
    """Number of trials."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each trial: a count or a list."""
    validation_seeds: int | tuple[int, ...] = 5
    """Fresh seeds for the best trial: a count of the seeds that follow `seeds`, or a list."""
    objective: str = "last_return"
    """Score of a run."""
    aggregate: str = "worse_half"
    """How the scores of a trial's seeds are combined."""
    sampler: str = "tpe"
    """How settings are proposed."""
    pruner: str = "median"
    """How bad trials are stopped early."""
    seed: int = Field(default=0, ge=0, lt=LARGEST_INT)
    """Seed of the sampler."""
    first: tuple[dict[str, Any], ...] = ()
    """Settings to try first, after those of the config."""
    fqe_updates: int | None = Field(default=None, gt=0)
    """Updates of each fitted Q evaluation; null means 20,000."""
    parallel_trials: int | None = Field(default=None, gt=0, le=MAX_TRIALS)
    """Number of trials whose outcome is not known when a trial is proposed, including that trial;
    null chooses a number for this machine."""

    _settings = field_validator("set")(check_settings)
    _name = field_validator("name")(check_name)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        return as_seeds(value)

    @field_validator("validation_seeds", mode="before")
    @classmethod
    def _count_of_fresh_seeds(cls, value: Any) -> Any:
        seeds = as_seeds(value, "validation_seeds")
        return len(seeds) if isinstance(value, int | float) else seeds

    @field_validator("objective", "aggregate", "sampler", "pruner")
    @classmethod
    def _check_choice(cls, value: str, info: Any) -> str:
        known = list(_CHOICES[info.field_name])
        if value not in known:
            raise ConfigError(
                f"{info.field_name} = {shown(value)} is unknown{nearest(value, known)}"
            )
        return value

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for the index."""
        return self.in_order(tuples_to_lists(self.model_dump()))


COMPARED_KEYS = ("config", "set", "seeds", "objective", "aggregate", "threads", "fqe_updates")
"""Keys that affect the value of a trial."""

FIXED_KEYS = (*COMPARED_KEYS, "space", "sampler", "pruner", "seed", "executor")
"""Keys that a tuning keeps, so that it can be reproduced."""


@dataclass(frozen=True)
class TuningPlan:
    """A checked tuning."""

    description: TuningConfig
    """With the config, the space and all defaults filled in."""
    settings: Settings
    """Config keys that are changed in every trial, including those that the tuning chooses."""
    is_named: bool = True
    """Whether the user has specified the config in this session."""
    known_space: Space | None = None
    known_kind: CheckedKind | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The mapping of the config that is tuned."""
        assert isinstance(self.description.config, dict)
        return self.description.config

    @property
    def base_config(self) -> TrainConfig:
        """The config of a run without settings of a trial."""
        return self.run_config({})

    @property
    def space(self) -> Space:
        """What varies."""
        assert self.known_space is not None
        return self.known_space

    @cached_property
    def objective(self) -> Objective:
        """What is optimized."""
        assert self.known_kind is not None
        config = self.base_config.model_copy(
            update={"total_timesteps": self.known_kind.total_timesteps}
        )
        return Objective.of(self.description.objective, self.description.aggregate, config)

    @cached_property
    def own_params(self) -> Params | None:
        """The settings of the config itself, or None if they are not part of the space."""
        return own_params(self.space, make_config(base_with(self.config, self.settings)))

    @property
    def validation_seeds(self) -> tuple[int, ...]:
        """Fresh seeds for the best trial."""
        assert isinstance(self.description.validation_seeds, tuple)
        return self.description.validation_seeds

    def updated(self, changes: Mapping[str, Any]) -> TuningPlan:
        """Return the plan with changes of the description that its runs do not depend on."""
        return replace(self, description=self.description.model_copy(update=dict(changes)))

    def run_config(self, params: Params) -> TrainConfig:
        """Return the config of a run with the settings of a trial."""
        description = self.description
        config = make_run_config(
            self.config,
            self.settings,
            params,
            description.resources,
            threads=description.threads,
        )
        return config if self.is_named else saved_config(config.to_dict()).resolved()

    def is_valid(self, params: Params) -> bool:
        """Return whether the config accepts settings."""
        try:
            self.group(0, params)
        except ConfigError:
            return False
        return True

    def group(self, number: int, params: Params) -> PlannedGroup:
        """Return the runs of a trial."""
        return self._group(trial_label(number), params, self.description.seeds)

    def validation_groups(self, best: Trial) -> list[PlannedGroup]:
        """Return the runs that compare the best trial with the config that was tuned."""
        base = self._group(BASE_LABEL, {}, self.validation_seeds)
        if best.params == self.own_params:
            return [base]
        return [self._group(best_label(best.number), best.params, self.validation_seeds), base]

    def _group(self, label: str, params: Params, seeds: Sequence[int]) -> PlannedGroup:
        assert self.known_kind is not None
        return complete_group(self.incomplete_group(label, params, seeds), self.known_kind)

    def incomplete_group(self, label: str, params: Params, seeds: Sequence[int]) -> PlannedGroup:
        """Return runs whose environment and data need not be known."""
        config = self.run_config(params)
        return PlannedGroup(
            label=label,
            task=task_name(config, {}, {}),
            config=config,
            seeds=tuple(seeds),
            resources=choose_resources(config, self.description.resources),
            source="The config",
        )

    def tuned_config(self, params: Params) -> dict[str, Any]:
        """Return the mapping of the config with the settings of a trial."""
        return base_with(self.config, self.description.set | params)


def best_label(number: int) -> str:
    """Return the label of the runs that validate a trial."""
    return f"best-{number:04d}"


def plan_tuning(description: TuningConfig, *, is_named: bool = True) -> TuningPlan:
    """Fill in the config, the space and the defaults of a tuning, and check everything.

    ``is_named`` is whether the user has specified the config in this session, so that its
    environment may be created with any arguments.
    """
    base = _base_config(description)
    plan = TuningPlan(
        description.model_copy(
            update={"config": base, "validation_seeds": _validation_seeds(description)}
        ),
        settings=description.set,
        is_named=is_named,
    )
    first = plan.base_config
    if is_named:
        name_config(first)
    check_objective(description, first)
    kind = check_group(plan.incomplete_group(BASE_LABEL, {}, description.seeds))
    settings = description.set | evaluation_settings(description, kind.total_timesteps)
    plan = replace(plan, settings=settings, known_kind=kind)
    space = _space(description, base_with(base, settings))
    plan = replace(
        plan,
        description=plan.description.model_copy(update={"space": space.to_plain()}),
        known_space=space,
    )
    _check_first(plan)
    return plan


def space_of(description: TuningConfig) -> Space:
    """Return what a tuning varies; its environment and data need not exist."""
    return _space(description, base_with(_base_config(description), description.set))


def _base_config(description: TuningConfig) -> dict[str, Any]:
    """Return the mapping of the config that is tuned."""
    config = description.config
    base = read_config(config) if isinstance(config, str) else deepcopy(config)
    return {key: value for key, value in base.items() if key not in RESERVED_KEYS}


def _space(description: TuningConfig, config: Mapping[str, Any]) -> Space:
    """Return the space for a config with the settings of a tuning."""
    fixed = fixed_keys(description)
    if description.space is None:
        return packaged_space(config, fixed)
    return make_space(description.space, config, fixed, "The space")


def fixed_keys(description: TuningConfig) -> dict[str, str]:
    """Return the keys that the space must not contain, with the reason."""
    given = "it is also set for all trials, so remove one of the two"
    fixed = {short_key(key): given for key in description.set}
    if description.objective == "fqe":
        fixed["gamma"] = "values with different discounts cannot be compared by objective fqe"
    return fixed


def _check_first(plan: TuningPlan) -> None:
    """Reject settings to try first that do not belong to the space."""
    for params in plan.description.first:
        if not plan.space.contains(params):
            raise ConfigError(
                f"first contains {shown(dict(params))}, which is not a setting of the space "
                f"{shown(plan.space.to_plain())}."
            )


def base_with(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping of a config with the settings of a tuning."""
    data = deepcopy(dict(base))
    for key in sorted(settings, key=lambda key: key != "algo"):
        set_config_key(data, key, deepcopy(settings[key]))
    return data


def evaluation_settings(description: TuningConfig, total_timesteps: int) -> Settings:
    """Return how often runs are evaluated, unless the user has chosen that."""
    given = {short_key(key) for key in description.set}
    settings: Settings = {}
    if description.objective == "fqe" and "eval_episodes" not in given:
        settings["eval_episodes"] = 0  # no episode is played for the tuning
    if "eval_interval" not in given:
        is_used = SCORES[description.objective].metric is not None
        settings["eval_interval"] = math.ceil(total_timesteps / EVALUATIONS) if is_used else 0
    return settings


def check_objective(description: TuningConfig, config: TrainConfig) -> None:
    """Reject an objective that the runs cannot be measured by."""
    name, kind = description.objective, SCORES[description.objective]
    if name == "fqe" and config.mode != "offline":
        raise ConfigError(
            f"objective = fqe: {config.algo} learns online, but fitted Q evaluation needs recorded "
            "data. Use last_return."
        )
    if kind.metric == "eval_return_mean" and (config.env_id is None or not config.eval_episodes):
        missing = "no environment" if config.env_id is None else "eval_episodes = 0"
        raise ConfigError(
            f"objective = {name}: the config has {missing}, so no returns are measured. Set "
            "objective to fqe to use recorded data only."
        )


def _validation_seeds(description: TuningConfig) -> tuple[int, ...]:
    given = description.validation_seeds
    if isinstance(given, int):
        first = max(description.seeds) + 1
        return tuple(range(first, first + given))
    twice = set(given) & set(description.seeds)
    if twice:
        raise ConfigError(
            f"validation_seeds contains {min(twice)}, which trials use as well: the best of many "
            "trials is lucky on its own seeds, so choose others."
        )
    return given
