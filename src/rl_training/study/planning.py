"""Expand the description of a study into runs, and check them before anything is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from rl_training.boundary import json_codec
from rl_training.boundary.terminal import print_stderr
from rl_training.errors import ConfigError
from rl_training.experiment.config import (
    TrainConfig,
    make_config,
    name_config,
    read_config,
    replace_dataset,
    saved_config,
    set_key,
)
from rl_training.experiment.machine import choose_device
from rl_training.experiment.memory import MemoryNeeds
from rl_training.experiment.starter_data import save_starter
from rl_training.experiment.task import check_config
from rl_training.study.config import RunEntry, StudyConfig
from rl_training.study.differences import OWN_KEYS, first_difference
from rl_training.study.index import StudyIndex
from rl_training.study.naming import add_settings, base_label, task_name, task_settings
from rl_training.study.resources import Resources, ResourcesConfig
from rl_training.types import EnvSpec

MAX_PLANNED = 100_000
"""Maximum number of runs that one description may expand to."""

MEMORY_STEP = 64 << 20
"""Estimates of memory are rounded up to multiples of this size."""


@dataclass(frozen=True)
class PlannedGroup:
    """Runs that differ only in their seeds: one label on one task."""

    label: str
    task: str
    config: TrainConfig
    """The resolved config, with any seed."""
    seeds: tuple[int, ...]
    resources: Resources
    source: str
    """The entry that it comes from, for errors."""
    task_is_chosen: bool = False
    """Whether the user has named the task."""

    @property
    def settings(self) -> dict[str, Any]:
        """The config as plain data, without what differs between the runs."""
        return {k: v for k, v in self.config.to_dict().items() if k not in OWN_KEYS}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    label: str
    task: str
    seed: int
    config: dict[str, Any]


@dataclass(frozen=True)
class CheckedKind:
    """What is known about the environment and data of a kind of groups (`group_kind`)."""

    spec: EnvSpec
    rows: int
    """Number of rows of the dataset."""
    total_timesteps: int
    """The budget, with `num_epochs` converted to updates."""


@dataclass(frozen=True)
class StudyPlan:
    """The runs of a study, in groups."""

    description: StudyConfig
    groups: tuple[PlannedGroup, ...]
    kinds: Mapping[str, CheckedKind]
    """Facts about each kind of group."""

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs, group by group."""
        return [
            PlannedRun(group.label, group.task, seed, group.settings | {"seed": seed})
            for group in self.groups
            for seed in group.seeds
        ]

    def __len__(self) -> int:
        return sum(len(group.seeds) for group in self.groups)


def plan_study(description: StudyConfig) -> StudyPlan:
    """Expand a description and check it, including environments and data."""
    groups = merge_groups(expand(description))
    for group in groups:
        name_config(group.config)
    check_task_names(groups)
    kinds = check_kinds(groups)
    complete = (complete_group(group, kinds[group_kind(group)]) for group in groups)
    return StudyPlan(description, tuple(complete), kinds)


def groups_of(index: StudyIndex) -> list[PlannedGroup]:
    """Return the groups of a study that is already planned."""
    seeds: dict[str, list[int]] = {}
    for run in index:
        seeds.setdefault(run.group.folder, []).append(run.seed)
    return [
        PlannedGroup(
            label=group.label,
            task=group.task,
            config=saved_config(group.config),
            seeds=tuple(seeds[folder]),
            resources=Resources.from_record(group.resources),
            source=f"{index.path} ({group.label})",
        )
        for folder, group in index.groups.items()
        if folder in seeds
    ]


# --- Expanding --------------------------------------------------------------------------


def expand(description: StudyConfig) -> Iterator[PlannedGroup]:
    """Yield the groups of all entries, with every environment and every grid point."""
    total = sum(
        len(entry.env_ids)
        * math.prod(len(values) for values in (description.grid | entry.grid).values())
        * len(entry.seeds or description.seeds)
        for entry in description.runs
    )
    if total > MAX_PLANNED:
        raise ConfigError(
            f"The study has {total:,} runs, but at most {MAX_PLANNED:,} are allowed: use a smaller "
            "grid or fewer seeds."
        )
    for number, entry in enumerate(description.runs, start=1):
        name = entry.config if isinstance(entry.config, str) else entry.label
        source = f"Run {number}" + (f" ({name})" if name else "")
        try:
            yield from _expand_entry(description, entry, source)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None


def _expand_entry(description: StudyConfig, entry: RunEntry, source: str) -> Iterator[PlannedGroup]:
    base = read_config(entry.config) if isinstance(entry.config, str) else entry.config
    grid = description.grid | entry.grid
    resources = description.resources.updated(entry.resources)
    for env_id in entry.env_ids:
        given = description.set | ({} if env_id is None else {"env_id": env_id}) | entry.set
        for values in product(*grid.values()):
            varied = dict(zip(grid, values, strict=True))
            config = make_run_config(base, given, varied, resources, threads=description.threads)
            label = entry.label or add_settings(base_label(entry, config.algo), entry.set)
            yield PlannedGroup(
                label=add_settings(label, varied),
                task=entry.task or task_name(config, varied, grid),
                config=config,
                seeds=entry.seeds or description.seeds,
                resources=choose_resources(config, resources),
                source=source,
                task_is_chosen=entry.task is not None,
            )


def make_run_config(
    base: Mapping[str, Any],
    settings: Mapping[str, Any],
    varied: Mapping[str, Any],
    resources: ResourcesConfig,
    *,
    threads: int,
) -> TrainConfig:
    """Return the config of a group, with everything fixed that results depend on."""
    data = deepcopy({key: value for key, value in base.items() if key not in OWN_KEYS})
    for place, changes in (("set", settings), ("grid", varied)):
        # The other keys depend on the algorithm.
        for key in sorted(changes, key=lambda key: key != "algo"):
            try:
                set_key(data, key, deepcopy(changes[key]))
            except ConfigError as error:
                raise ConfigError(f"{place}.{key}: {error}") from None
        replace_dataset(data, [key.removeprefix("algo_kwargs.") for key in changes])
    config = make_config(data)
    if config.seeds is not None:
        raise ConfigError("the config sets seeds: set them in the study instead.")
    if config.finetunes:
        raise ConfigError("fine-tuned runs cannot be part of a study.")
    kwargs = dict(config.algo_kwargs)
    if kwargs.get("num_threads") is None:
        kwargs["num_threads"] = threads
    device = choose_run_device(config.device, resources.gpus)
    return config.model_copy(update={"algo_kwargs": kwargs, "device": device}).resolved()


def choose_run_device(device: str, gpus: float | None) -> str:
    """Return the device to record in the plan, so that it does not depend on the machine."""
    if device.startswith("cuda:"):
        raise ConfigError(
            f"device = {device!r}: a study assigns the GPUs itself, so use device: cuda."
        )
    if device == "auto" and gpus is not None:
        return "cuda" if gpus > 0 else "cpu"
    if device == "auto":
        return choose_device(device).type
    if device == "cuda" and gpus == 0:
        raise ConfigError("device = cuda requires a GPU, but resources.gpus is 0.")
    if device != "cuda" and gpus:
        raise ConfigError(
            f"device = {device} uses no CUDA GPU, but resources.gpus is {gpus:g}: leave one out."
        )
    return device


def choose_resources(config: TrainConfig, wanted: ResourcesConfig) -> Resources:
    """Return what a run needs: by default a core for each thread and for each environment process.

    The learner and the environments take turns, so the larger of the two numbers counts.
    """
    threads = config.parts.controls.num_threads or 1
    processes = config.num_envs if config.parts.env.vectorization == "async" else 0
    if config.mode == "offline":
        processes = 0
    cpus = wanted.cpus if wanted.cpus is not None else float(max(threads, processes))
    if cpus < threads:
        raise ConfigError(
            f"resources.cpus = {cpus:g} is less than the {threads} threads of a run: increase it, "
            "or use fewer threads."
        )
    gpus = wanted.gpus if wanted.gpus is not None else float(config.device == "cuda")
    return Resources(cpus=cpus, gpus=gpus, memory=wanted.memory or 0)


# --- Checking ---------------------------------------------------------------------------


def merge_groups(groups: Iterator[PlannedGroup]) -> list[PlannedGroup]:
    """Join groups with the same label and settings; reject different settings with one label."""
    merged: dict[tuple[str, str], PlannedGroup] = {}
    for group in groups:
        place = (group.label, group.task)
        first = merged.get(place)
        if first is None:
            merged[place] = group
            continue
        difference = first_difference(first.settings, group.settings)
        if difference is not None:
            raise ConfigError(
                f"{first.source} and {group.source} have the same label {group.label!r} on "
                f"{group.task}, but {difference}: give them different labels."
            )
        seeds = tuple(dict.fromkeys((*first.seeds, *group.seeds)))
        merged[place] = replace(first, seeds=seeds)
    return list(merged.values())


def check_task_names(groups: list[PlannedGroup]) -> None:
    """Reject one name for two tasks, unless the user has chosen it."""
    known: dict[str, PlannedGroup] = {}
    for group in groups:
        if group.task_is_chosen:
            continue
        first = known.setdefault(group.task, group)
        difference = first_difference(task_settings(first.config), task_settings(group.config))
        if difference is not None:
            raise ConfigError(
                f"{first.source} and {group.source} are both on the task {group.task!r}, but "
                f"{difference}: name one of the tasks with task: NAME."
            )


def group_kind(group: PlannedGroup) -> str:
    """Return a key that is equal for groups of which it is enough to check one."""
    data = group.config.parts.data
    kind: dict[str, Any] = {"algo": group.config.algo, **task_settings(group.config)}
    kind |= {"data": data.model_dump(), "num_envs": group.config.num_envs}
    if data.num_epochs is not None:
        kind["batch_size"] = group.config.parts.algorithm.batch_size
    return json_codec.dumps(kind).decode()


def check_kinds(groups: Sequence[PlannedGroup]) -> dict[str, CheckedKind]:
    """Check the environment and the data of one group of each kind."""
    kinds: dict[str, CheckedKind] = {}
    for group in groups:
        kind = group_kind(group)
        if kind not in kinds:
            kinds[kind] = check_group(group)
    return kinds


def check_group(group: PlannedGroup) -> CheckedKind:
    """Check the environment and the data of a group, on the CPU; record the starter dataset."""
    config, kwargs = group.config, dict(group.config.algo_kwargs)
    if config.device != "cpu":  # the machine that plans may have no GPU
        kwargs["engine"] = "auto"
    try:
        task = check_config(config.model_copy(update={"device": "cpu", "algo_kwargs": kwargs}))
    except ConfigError as error:
        raise ConfigError(f"{group.source}: {error}") from None
    recorded = save_starter(task.config)
    if recorded is not None:
        print_stderr(recorded)
    rows = 0 if task.data is None else task.data.rows_in_memory
    return CheckedKind(task.spec, rows, task.config.budget)


def complete_group(group: PlannedGroup, kind: CheckedKind) -> PlannedGroup:
    """Fill in the budget of a group in steps, and an estimate of its memory."""
    if group.config.total_timesteps is None:
        update = {"total_timesteps": kind.total_timesteps}
        group = replace(group, config=group.config.model_copy(update=update).resolved())
    if group.resources.memory:
        return group
    needs = MemoryNeeds.of(group.config, kind.spec, kind.rows)
    memory = needs.on_host(torch.device(group.config.device))
    memory = math.ceil(memory / MEMORY_STEP) * MEMORY_STEP
    return replace(group, resources=replace(group.resources, memory=memory))
