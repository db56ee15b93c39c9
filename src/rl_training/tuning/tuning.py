"""`Tuning`: search for the settings with the best score."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.api.arguments import as_path
from rl_training.config_model import validated
from rl_training.errors import ConfigError, TrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.git_state import read_git_state
from rl_training.study.config import read_mapping
from rl_training.study.coordinator import Coordinator, Watcher
from rl_training.study.folder import check_run_folders
from rl_training.study.hosts import describe_host
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.population_executor import PopulationExecutor
from rl_training.study.records import INDEX_FILE
from rl_training.study.study import JobMaker, RunOptions, raise_interrupt
from rl_training.text import counted, shown
from rl_training.tuning.config import TuningConfig, TuningPlan, plan_tuning, space_of
from rl_training.tuning.folder import (
    TuningSession,
    check_same_tuning,
    check_tuning_folder,
    open_tuning,
    read_tuning,
)
from rl_training.tuning.generations import GENERATION, GenerationSource, separating_keys
from rl_training.tuning.judging import best_trial
from rl_training.tuning.optuna_memory import require_optuna
from rl_training.tuning.scheduling import TrialSource
from rl_training.tuning.storage import StorageCopy, check_storage, without_passwords
from rl_training.tuning.trials import Trial, TrialIndex, TrialStatus, trial_runs
from rl_training.tuning.warm_start import WarmStart, read_warm_start
from rl_training.tuning.winner import (
    BEST_FILE,
    Validation,
    best_and_validation,
    number_text,
    params_text,
    summary,
    write_best,
)

if TYPE_CHECKING:
    from rl_training.study.executor import Executor

DEFAULT_FQE_UPDATES = 20_000
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class TuningResult:
    """Result of `Tuning.run`: the trials, the best one, and its scores on fresh seeds."""

    path: Path
    name: str
    trials: Sequence[Trial]
    best: Trial | None
    """The trial with the best value; None if no trial is complete."""
    validation: Validation | None
    """Scores of the best trial and of the config that was tuned, on the same fresh seeds; None
    until they are complete."""
    planned: int
    """Number of trials that were requested."""
    seconds: float = 0.0
    interrupted_by: str | None = None
    """Name of the signal that stopped the tuning, if any."""

    @property
    def best_params(self) -> dict[str, Any] | None:
        """Settings of the best trial."""
        return None if self.best is None else dict(self.best.params)

    @property
    def config_file(self) -> Path:
        """The config with the settings of the best trial."""
        return self.path / BEST_FILE

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        states = {
            status.value: sum(trial.status is status for trial in self.trials)
            for status in TrialStatus
        }
        return {
            "tuning": str(self.path),
            "name": self.name,
            "trials": len(self.trials),
            "planned": self.planned,
            **states,
            **summary(self.best, self.validation),
            "config": str(self.config_file) if self.config_file.is_file() else None,
            "seconds": self.seconds,
            "interrupted_by": self.interrupted_by,
        }


@dataclass(frozen=True)
class TuneOptions(RunOptions):
    """How to run a tuning: the arguments of `Tuning.run`, and the command to record."""

    warm_start: Sequence[PathLike] = ()
    storage: str | None = None


class Tuning:
    """A search for settings of a config, over several seeds each.

    A tuning is a folder like a study: each trial is a group of ordinary runs. Running it again
    continues it: complete trials are kept, and interrupted runs are resumed.
    """

    def __init__(
        self,
        config: PathLike | Mapping[str, Any] | TrainConfig,
        *,
        space: PathLike | Mapping[str, Any] | None = None,
        trials: int = 50,
        seeds: int | Sequence[int] = 3,
        validation_seeds: int | Sequence[int] = 5,
        set: Mapping[str, Any] | None = None,
        objective: str = "last_return",
        aggregate: str = "worse_half",
        sampler: str = "tpe",
        pruner: str = "median",
        seed: int = 0,
        first: Sequence[Mapping[str, Any]] = (),
        parallel_trials: int | None = None,
        threads: int = 1,
        retries: int = 2,
        resources: Mapping[str, Any] | None = None,
        executor: str = "local",
        members: int | None = None,
        fqe_updates: int | None = None,
        name: str | None = None,
    ) -> None:
        """Describe a tuning; nothing is written before `run`.

        Args:
            config: The config that is tuned: a packaged config, a file, a mapping or a config.
            space: What varies: a YAML file, or a mapping of config keys to lists of values or
                ranges such as ``{"low": 1e-4, "high": 1e-2, "log": True}``. By default, the
                packaged space of the algorithm.
            trials: Number of trials.
            seeds: Seeds of each trial: a count or a list.
            validation_seeds: Fresh seeds for the best trial: a count of the seeds that follow
                ``seeds``, or a list.
            set: Config keys to change in every trial.
            objective: Score of a run: ``"last_return"``, ``"best_return"``,
                ``"area_under_curve"`` or ``"fqe"``.
            aggregate: How the scores of the seeds are combined: ``"worse_half"``, ``"mean"``,
                ``"median"`` or ``"worst"``.
            sampler: ``"tpe"``, ``"gp"`` or ``"random"``.
            pruner: ``"median"``, ``"halving"`` or ``"none"``.
            seed: Seed of the sampler.
            first: Settings to try first, after those of the config.
            parallel_trials: Number of trials that may be open at the same time; by default, chosen
                for this machine and recorded. Populations have as many trials.
            threads: Threads of each run.
            retries: How often a run that fails is tried again.
            resources: What each run needs: `cpus`, `gpus`, `memory`.
            executor: ``"local"``, a process for each run, or ``"population"``: runs that differ
                only in seeds and numbers train as one program (docs/populations.md).
            members: Most runs that train as one program; by default, all that can.
            fqe_updates: Updates of each fitted Q evaluation; by default 20,000.
            name: Name of the tuning; by default, the name of its folder.
        """
        require_optuna()
        data: dict[str, Any] = {
            "config": _config(config),
            "space": _space(space),
            "trials": trials,
            "seeds": _listed(seeds),
            "validation_seeds": _listed(validation_seeds),
            "set": dict(set or {}),
            "objective": objective,
            "aggregate": aggregate,
            "sampler": sampler,
            "pruner": pruner,
            "seed": seed,
            "first": [dict(params) for params in first],
            "parallel_trials": parallel_trials,
            "threads": threads,
            "retries": retries,
            "resources": dict(resources or {}),
            "executor": executor,
            "members": members,
            "fqe_updates": fqe_updates,
            "name": name,
        }
        self.description = validated(TuningConfig, data)
        """What to tune."""
        self.path: Path | None = None
        """Folder of the tuning, once it is known."""
        self._is_named = True

    @classmethod
    def load(cls, folder: PathLike) -> Tuning:
        """Load a tuning from its folder."""
        require_optuna()
        tuning = cls.__new__(cls)
        tuning.path = as_path("folder", folder, "a tuning's folder")
        _, tuning.description = read_tuning(tuning.path)
        tuning._is_named = False
        return tuning

    def plan(self) -> TuningPlan:
        """Check the config, the space, the environment and the data."""
        return plan_tuning(self.description, is_named=self._is_named)

    @property
    def space(self) -> dict[str, Any]:
        """What varies, as in a space file."""
        return space_of(self.description).to_plain()

    def result(self) -> TuningResult:
        """Return what is recorded in the folder, as of now."""
        if self.path is None:
            raise ConfigError("This tuning has no folder yet: call run(FOLDER), or load a folder.")
        trials, description = read_tuning(self.path)
        plan = plan_tuning(description, is_named=self._is_named)
        return _result(self.path, plan, StudyIndex.open(self.path), trials)

    def run(
        self,
        out: PathLike | None = None,
        *,
        warm_start: Sequence[PathLike] = (),
        storage: str | None = None,
        executor: Executor | None = None,
        cores: float | None = None,
        gpus: int | None = None,
        memory: int | str | None = None,
        shard: str | None = None,
        imports: Sequence[str] = (),
        retry_failed: bool = False,
        watchers: Sequence[Watcher] = (),
        progress: bool | None = None,
    ) -> TuningResult:
        """Run all trials that have no outcome yet, validate the best one, and return the result.

        On Ctrl-C, running runs save a checkpoint before KeyboardInterrupt is raised.

        Args:
            out: Folder of the tuning; not needed for a tuning that was loaded from its folder.
            warm_start: Folders of earlier tunings to learn from.
            storage: An Optuna database URL or a file to which all trials are copied, for
                dashboards.
            executor: Where to train; by default, on this machine with the described executor.
            cores: Cores of this machine to use; by default, all that this process may use.
            gpus: Number of GPUs to use; by default, all.
            memory: Memory to use, such as ``8GiB``; by default, that of the machine.
            shard: Number of this process and of all processes that share the folder, such as
                ``3/16``.
            imports: Modules that workers import first, such as ones that register environments.
            retry_failed: Whether to try runs again that have failed too often.
            watchers: Objects that follow the runs.
            progress: Whether to show a live display; by default, in a terminal only.
        """
        options = TuneOptions(
            cores=cores,
            gpus=gpus,
            memory=memory,
            warm_start=warm_start,
            storage=storage,
            executor=executor,
            shard=shard,
            imports=imports,
            retry_failed=retry_failed,
            watchers=watchers,
            progress=progress,
        )
        result = self.run_trials(out, options)
        raise_interrupt(result.interrupted_by, f"The tuning in {result.path}")
        return result

    def run_trials(self, out: PathLike | None, options: TuneOptions) -> TuningResult:
        """Run the tuning like `run`; the result says whether a signal ended it."""
        began = time.monotonic()
        folder, git = self._folder(out), read_git_state()
        if options.address is not None and self.description.executor == "population":
            raise ConfigError(
                f"The tuning in {folder} trains populations, which need a device of this machine, "
                "not a Ray cluster: omit --executor ray."
            )
        with ExitStack() as stack:
            executor = stack.enter_context(options.open_executor(self.description))
            if isinstance(executor, PopulationExecutor) and options.part is not None:
                raise ConfigError(
                    f"shard = {options.part}: a population trains in one process, so several "
                    "cannot share a tuning with executor = population. Omit shard."
                )
            check_tuning_folder(folder)
            plan, warm = self._checked_plan(folder, executor, options.warm_start)
            if options.storage is not None and options.part is None:
                _check_new_storage(options.storage, folder, plan)
            watchers = stack.enter_context(options.open_watchers(folder))
            session = stack.enter_context(
                open_tuning(
                    folder,
                    plan,
                    priors=warm.priors,
                    shard=options.part,
                    command=without_passwords(options.command or sys.argv),
                    git=git,
                    host=describe_host(),
                )
            )
            self.path = folder
            with session.planning():  # other processes do not write to the storage meanwhile
                copy = _StorageCopier(options.storage, session, plan, watchers)
            report = _Report(watchers, session, plan)
            report.headline(folder, warm)
            _plan_lost_runs_again(session, plan)
            following: dict[str, Any] = {
                "on_outcome": report.outcome,
                "on_change": copy.update,
                "retry_failed": options.retry_failed,
            }
            source: TrialSource
            if isinstance(executor, PopulationExecutor):
                source = GenerationSource(
                    plan, session, executor, on_waiting=report.waiting, **following
                )
            else:
                executor.prepare(folder)
                source = TrialSource(plan, session, executor, **following)
            description = plan.description
            fqe_updates = description.fqe_updates or DEFAULT_FQE_UPDATES
            job_maker = JobMaker(
                session.index,
                self._is_named,
                tuple(options.imports),
                git,
                fqe_updates=fqe_updates if description.objective == "fqe" else None,
            )
            coordinator = Coordinator(
                session,
                executor,
                [],
                job_maker,
                retries=description.retries,
                watchers=watchers,
                source=source,
            )
            signal = coordinator.run()
            with session.planning():
                copy.finish(session.trials)
            result = _result(folder, plan, session.index, session.trials)
            if result.best is not None:
                write_best(folder, plan, session.trials, result.best, result.validation)
        return _result(
            folder,
            plan,
            session.index,
            session.trials,
            seconds=time.monotonic() - began,
            interrupted_by=signal,
        )

    def _checked_plan(
        self, folder: Path, executor: Executor, warm_start: Sequence[PathLike]
    ) -> tuple[TuningPlan, WarmStart]:
        """Return the plan, with everything filled in that is chosen when a tuning starts."""
        plan, warm = self.plan(), WarmStart()
        base = plan.group(0, {})
        executor.check(base.resources, f"A run of {base.config.algo}")
        is_population = isinstance(executor, PopulationExecutor)
        update: dict[str, Any] = {"executor": "population" if is_population else "local"}
        plan = plan.updated(update)
        if (folder / INDEX_FILE).is_file():
            _, old = read_tuning(folder)
            check_same_tuning(folder, old, plan.description)
            update["first"], update["name"] = old.first, plan.description.name or old.name
            parallel = old.parallel_trials
        else:
            warm = read_warm_start(warm_start, plan)
            update["first"] = (*plan.description.first, *warm.first)
            parallel = (
                GENERATION
                if is_population
                else default_parallel_trials(
                    executor.at_once(base.resources), len(plan.description.seeds)
                )
            )
        update["parallel_trials"] = plan.description.parallel_trials or parallel
        return plan.updated(update), warm

    def _folder(self, out: PathLike | None) -> Path:
        if out is None and self.path is None:
            raise ConfigError("Pass the folder of the tuning: run('my_tuning').")
        folder = as_path("out", out, "a folder") if out is not None else self.path
        assert folder is not None
        if not self._is_named and folder != self.path:
            raise ConfigError(
                f"out = {shown(str(folder))}: this tuning was loaded from {self.path}, so leave "
                "out the folder."
            )
        return folder


def tune(
    config: PathLike | Mapping[str, Any] | TrainConfig,
    out: PathLike,
    *,
    trials: int = 50,
    **options: Any,
) -> TuningResult:
    """Search for the best settings of a config, or continue the search in a folder.

    Args:
        config: The config that is tuned: a packaged config, a file, a mapping or a config.
        out: Folder of the tuning.
        trials: Number of trials.
        **options: Arguments of `Tuning` and of `Tuning.run`.
    """
    names = set(signature(Tuning.run).parameters)
    if isinstance(options.get("executor"), str):  # the kind, which is part of the description
        names.remove("executor")
    running = {key: options.pop(key) for key in list(options) if key in names}
    return Tuning(config, trials=trials, **options).run(out, **running)


def default_parallel_trials(slots: int, seeds: int) -> int:
    """Return the number of trials that may be open, for a number of runs at the same time.

    With one run at a time, every trial knows all earlier ones. Otherwise there are twice as many as
    fill the machine, so that a slow trial does not leave it idle.
    """
    return 1 if slots <= 1 else 2 * -(-slots // seeds)


def _listed(seeds: Any) -> Any:
    return list(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else seeds


def _config(config: Any) -> Any:
    if isinstance(config, TrainConfig):
        return config.to_dict()
    return os.fspath(config) if isinstance(config, os.PathLike) else config


def _space(space: Any) -> Any:
    """Return the contents of a space."""
    if isinstance(space, str | os.PathLike):
        path = as_path("space", space, "a space file")
        if not path.is_file():
            raise ConfigError(f"The space file {shown(str(path))} does not exist.")
        return read_mapping(path)
    return None if space is None else dict(space)


def _result(
    folder: Path, plan: TuningPlan, index: StudyIndex, trials: TrialIndex, **facts: Any
) -> TuningResult:
    best, found = best_and_validation(plan, index, trials)
    return TuningResult(
        path=folder,
        name=index.name,
        trials=tuple(trials),
        best=best,
        validation=found,
        planned=plan.description.trials,
        **facts,
    )


def _plan_lost_runs_again(session: TuningSession, plan: TuningPlan) -> None:
    """Check the folders of runs that are still needed; plan those again that were deleted."""
    needed: list[StudyRun] = []
    for trial in session.trials.with_status(TrialStatus.OPEN):
        if trial.folder in session.index.groups:
            needed += trial_runs(session.index, trial, plan.description.seeds)
    trial_folders = {trial.folder for trial in session.trials}
    needed += [run for run in session.index if run.group.folder not in trial_folders]
    for run in check_run_folders(needed):
        session.lost(run)


def _check_new_storage(where: str, folder: Path, plan: TuningPlan) -> None:
    """Reject the storage of a new tuning before its folder is written."""
    if not (folder / INDEX_FILE).is_file():
        check_storage(where, plan.description.name or folder.resolve().name)


class _StorageCopier:
    """Copies trials to a storage; a storage that fails never stops the tuning."""

    def __init__(
        self,
        where: str | None,
        session: TuningSession,
        plan: TuningPlan,
        watchers: Sequence[Watcher],
    ) -> None:
        self._watchers = watchers
        self._copy: StorageCopy | None = None
        self._has_failed = False
        if where is not None:
            name = session.index.name
            self._copy = StorageCopy(where, session.trials, plan.space, name)

    def update(self, trials: TrialIndex) -> None:
        """Copy what is new; after a failure, only `finish` tries again."""
        if self._copy is None or self._has_failed:
            return
        try:
            self._copy.update(trials)
        except TrainingError as error:
            self._has_failed = True
            for watcher in self._watchers:
                watcher.message(f"Warning: {error}")

    def finish(self, trials: TrialIndex) -> None:
        """Copy what is missing at the end of a session."""
        self._has_failed = False
        self.update(trials)


class _Report:
    """Says what happens to the trials."""

    def __init__(
        self, watchers: Sequence[Watcher], session: TuningSession, plan: TuningPlan
    ) -> None:
        self._watchers = watchers
        self._session = session
        self._plan = plan
        self._waiting: set[str] = set()

    def headline(self, folder: Path, warm: WarmStart) -> None:
        """Describe what the tuning is about to do."""
        description, trials = self._plan.description, self._session.trials
        done = sum(trial.status is not TrialStatus.OPEN for trial in trials)
        known = f", {done} already done" if done else ""
        self._say(
            f"Tuning {self._session.index.name}: {counted(description.trials, 'trial')} with "
            f"{counted(len(description.seeds), 'seed')} each{known}, in {folder}"
        )
        self._say(f"Varying {', '.join(self._plan.space.dimensions)}.")
        for line in warm.lines:
            self._say(line)
        if description.executor == "population":
            self._describe_generations(description.parallel_trials or GENERATION)
        if self._plan.own_params is None:
            self._say(
                "The settings of the config are not part of the space, so they are only tried in "
                "the validation."
            )

    def _describe_generations(self, size: int) -> None:
        self._say(f"Trials are proposed {size} at a time, and their runs train together.")
        apart = separating_keys(self._plan)
        if apart:
            self._say(
                f"Trials that differ in {' or '.join(apart)} cannot train together, so there are "
                "several populations. For a single one, set these keys for all trials."
            )

    def waiting(self, run: StudyRun) -> None:
        """Say, once for each run, that another process is still training it."""
        if run.key not in self._waiting:
            self._waiting.add(run.key)
            self._say(f"Waiting for {run.key}, which another process is training.")

    def outcome(self, trial: Trial) -> None:
        """Describe the outcome of a trial."""
        trials = self._session.trials
        done = len(trials) - len(trials.with_status(TrialStatus.OPEN))
        value = f" {number_text(trial.value)}" if trial.value is not None else ""
        how = {
            TrialStatus.COMPLETE: f":{value}",
            TrialStatus.PRUNED: f" pruned at{value}",
            TrialStatus.FAILED: f" failed: {trial.reason}",
        }[trial.status]
        best = best_trial(trials)
        whose = "" if best is None else f"; best {number_text(best.value)} (trial {best.number})"
        self._say(
            f"[{done}/{self._plan.description.trials}] trial {trial.number}{how} "
            f"({params_text(trial.params)}){whose}"
        )

    def _say(self, text: str) -> None:
        for watcher in self._watchers:
            watcher.message(text)
