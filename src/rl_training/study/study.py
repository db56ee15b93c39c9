"""`Study`: many runs as one experiment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from rl_training.api.arguments import as_path, whole_number
from rl_training.api.progress import wants_display
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.git_state import read_git_state
from rl_training.study.config import (
    DEFAULT_SEEDS,
    ExecutionConfig,
    StudyConfig,
    make_study_config,
    read_study_file,
)
from rl_training.study.coordinator import Coordinator, Watcher
from rl_training.study.display import StudyDisplay
from rl_training.study.folder import (
    Shard,
    StudySession,
    check_folder,
    check_run_folders,
    is_study,
    open_session,
    planned_runs,
    read_description,
)
from rl_training.study.hosts import describe_host
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Job
from rl_training.study.live import LiveView
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.planning import StudyPlan, groups_of, plan_study
from rl_training.study.population_executor import PopulationExecutor
from rl_training.study.ray_cluster import RayExecutor
from rl_training.study.records import INDEX_FILE, RunStatus
from rl_training.study.resources import Resources, machine_budget, parse_size
from rl_training.text import counted, shown

if TYPE_CHECKING:
    from rl_training.study.estimating import StudyEstimate
    from rl_training.study.executor import Executor
    from rl_training.study.report.results import ScoreKind
    from rl_training.study.report.writing import ReferencesLike, StudyReport

RunLike = str | os.PathLike[str] | Mapping[str, Any] | TrainConfig


@dataclass(frozen=True)
class StudyResult:
    """Result of `Study.run`: the runs of the session, and how they ended."""

    path: Path
    name: str
    runs: Sequence[StudyRun]
    seconds: float
    interrupted_by: str | None = None
    """Name of the signal that stopped the study, if any."""

    def with_status(self, *statuses: RunStatus) -> list[StudyRun]:
        """Return the runs in these states."""
        return [run for run in self.runs if run.status in statuses]

    @property
    def failed(self) -> list[StudyRun]:
        """Runs that have failed."""
        return self.with_status(RunStatus.FAILED)

    @property
    def is_complete(self) -> bool:
        """Whether every run has ended."""
        return all(run.status.has_ended for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "study": str(self.path),
            "name": self.name,
            "runs": len(self.runs),
            **{status.value: len(self.with_status(status)) for status in RunStatus},
            "seconds": self.seconds,
            "interrupted_by": self.interrupted_by,
            "failures": [
                {"run": run.key, "attempts": run.attempts, "reason": run.reason}
                for run in self.failed
            ],
        }


@dataclass(frozen=True)
class RunOptions:
    """How to run a study: the arguments of `Study.run`, and the command to record."""

    shard: str | None = None
    retry_failed: bool = False
    cores: float | None = None
    memory: int | str | None = None
    gpus: int | None = None
    imports: Sequence[str] = ()
    executor: Executor | None = None
    watchers: Sequence[Watcher] = ()
    progress: bool | None = None
    command: Sequence[str] = ()
    address: str | None = None
    """Address of a Ray cluster; None for this machine."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """`executor` and `members`, if they differ from those of the study."""

    def _reject_limits(self) -> None:
        """Reject limits of this machine, which mean nothing for a cluster."""
        limits = {"cores": self.cores, "memory": self.memory, "gpus": self.gpus}
        for name, value in limits.items():
            if value is not None:
                raise ConfigError(
                    f"{name} = {shown(value)} limits this machine, not a cluster: leave it out. "
                    f"What each run needs is set with resources.{name.replace('cores', 'cpus')}."
                )

    @property
    def part(self) -> Shard | None:
        """The part of the runs that this process trains; None for all of them."""
        return None if self.shard is None else Shard.parse(self.shard)

    @contextmanager
    def open_executor(self, described: ExecutionConfig | None = None) -> Iterator[Executor]:
        """Return the executor, and close it at the end if it was created here."""
        if self.executor is not None:
            try:
                yield self.executor
            finally:
                self.executor.release()
            return
        if self.address is not None:
            self._reject_limits()
            with closing(RayExecutor(self.address)) as cluster:
                yield cluster
            return
        budget = machine_budget(*check_limits(self.cores, self.memory, self.gpus))
        how = dict(self.how)
        if described is not None:
            how = {"executor": described.executor, "members": described.members} | how
        is_population = how.get("executor") == "population"
        if how.get("members") is not None and not is_population:
            raise ConfigError(
                f"members = {how['members']} limits populations: set executor = population as well."
            )
        made = PopulationExecutor(budget, members=how.get("members")) if is_population else None
        with closing(made or LocalExecutor(budget)) as executor:
            yield executor

    @contextmanager
    def open_watchers(self, study: Path) -> Iterator[list[Watcher]]:
        """Return the watchers, one for other commands and, if it is wanted, a display."""
        with ExitStack() as stack:
            watchers = [*self.watchers, stack.enter_context(closing(LiveView(study, self.part)))]
            if wants_display(self.progress):
                watchers.append(stack.enter_context(closing(StudyDisplay())))
            yield watchers


def raise_interrupt(signal: str | None, what: str) -> None:
    """Raise what a signal would have raised without the runs, if there was one."""
    if signal == "SIGINT":
        raise KeyboardInterrupt(f"{what} was interrupted.")
    if signal is not None:
        raise SystemExit(128 + Signals[signal])


class Study:
    """Configs × environments × settings × seeds, run as one experiment.

    A study is a folder of ordinary runs with an index. Running it again continues it: finished runs
    are kept, interrupted ones are resumed, and failed ones are tried again.
    """

    def __init__(
        self,
        runs: Sequence[RunLike],
        *,
        seeds: int | Sequence[int] = DEFAULT_SEEDS,
        grid: Mapping[str, Sequence[Any]] | None = None,
        set: Mapping[str, Any] | None = None,
        name: str | None = None,
        threads: int = 1,
        retries: int = 2,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a study; nothing is read or written before `plan` or `run`.

        Args:
            runs: Packaged configs, YAML files, configs, or mappings with the keys of an entry of
                `runs` in a study file (docs/studies.md).
            seeds: A count or a list.
            grid: Lists of values by config key; every combination is run.
            set: Config keys to change in every run.
            name: Name of the study; by default, the name of its folder.
            threads: Threads of each run.
            retries: How often a run that fails is tried again.
            resources: What each run needs: `cpus`, `gpus`, `memory`.
        """
        if isinstance(runs, str | Mapping) or not isinstance(runs, Sequence):
            raise ConfigError(f"runs = {shown(runs)}: should be a list, such as ['sac/pendulum'].")
        data: dict[str, Any] = {
            "runs": [_entry(run) for run in runs],
            "seeds": list(seeds) if isinstance(seeds, Sequence) else seeds,
            "grid": {key: list(values) for key, values in (grid or {}).items()},
            "set": dict(set or {}),
            "name": name,
            "threads": threads,
            "retries": retries,
            "resources": dict(resources or {}),
        }
        self.description: StudyConfig | None = make_study_config(data, "Study")
        """What to run; None for a study that was loaded from its folder."""
        self.path: Path | None = None
        """Folder of the study, once it is known."""

    @classmethod
    def load(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Study:
        """Load a study from a YAML file, a mapping with the same keys, or a study's folder."""
        study = cls.__new__(cls)
        study.path = None
        if isinstance(source, Mapping):
            study.description = make_study_config(source, "Study")
            return study
        path = as_path("source", source, "a study file or a study's folder")
        if path.is_dir():
            if not is_study(path):
                raise ConfigError(f"{path} is a folder, but not a study: it has no index.")
            study.description, study.path = None, path
            return study
        if not path.exists():
            raise ConfigError(f"The study file {shown(str(path))} does not exist.")
        description = read_study_file(path)
        if description.name is None:
            description = description.model_copy(update={"name": path.stem})
        study.description = description
        return study

    def plan(self) -> StudyPlan:
        """Expand the description into runs, and check configs, environments and data."""
        if self.description is None:
            raise ConfigError(
                "This study was loaded from its folder, whose runs are already planned: use index."
            )
        return plan_study(self.description)

    @property
    def index(self) -> StudyIndex:
        """What is recorded about the study, as of now."""
        if self.path is None:
            raise ConfigError("This study has no folder yet: call run(FOLDER), or load a folder.")
        return StudyIndex.open(self.path)

    def status(self) -> dict[str, int]:
        """Return the number of runs in each state, as of now."""
        index = self.index
        return {status.value: sum(run.status is status for run in index) for status in RunStatus}

    def report(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        metric: str | None = None,
        score: ScoreKind = "last",
        baseline: str | None = None,
        references: ReferencesLike | None = None,
        threshold: float | None = None,
    ) -> StudyReport:
        """Write an HTML page with statistics and charts, and tables beside it, also during `run`.

        Args:
            out: The page to write; by default ``report.html`` in the folder of the study.
            metric: A metric in ``metrics.jsonl``; by default the evaluation return, or the held-out
                loss if no run was evaluated in an environment.
            score: What counts of each run: its ``"last"`` evaluation, its ``"best"`` one, or
                ``"area"``, the mean over training.
            baseline: Label with which the others are compared; by default, all pairs are compared
                if there are at most eight labels, and otherwise all with the first one.
            references: Random and expert returns by task or environment id, or a YAML file with
                them; they override the packaged ones.
            threshold: Score that counts as solved; by default a normalized score of 0.9.
        """
        from rl_training.study.report.writing import ReportSettings, write_report

        settings = ReportSettings(metric, score, baseline, references, threshold)
        file = None if out is None else as_path("out", out, "an HTML file")
        return write_report([self.index.path], file, settings)

    def estimate(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        cores: float | None = None,
        memory: int | str | None = None,
        gpus: int | None = None,
        imports: Sequence[str] = (),
    ) -> StudyEstimate:
        """Estimate the time and the disk space of all runs that have not ended.

        Times come from finished runs in the folder ``out``; without any, every method is trained
        for a few seconds in a temporary folder. Nothing is written to ``out``.
        """
        from rl_training.study.estimating import estimate

        budget = machine_budget(*check_limits(cores, memory, gpus))
        with closing(LocalExecutor(budget)) as executor:
            folder = None if out is None and self.path is None else self._folder(out)
            if folder is not None and self.description is not None:
                check_folder(folder, self.description.name)
            known = folder is not None and (folder / INDEX_FILE).is_file()
            index = StudyIndex.open(folder) if folder is not None and known else None
            is_named = self.description is not None
            groups = self.plan().groups if is_named else groups_of(self.index)
            return estimate(groups, index, executor, imports=imports, is_named=is_named)

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        shard: str | None = None,
        retry_failed: bool = False,
        cores: float | None = None,
        memory: int | str | None = None,
        gpus: int | None = None,
        imports: Sequence[str] = (),
        executor: Executor | None = None,
        watchers: Sequence[Watcher] = (),
        progress: bool | None = None,
    ) -> StudyResult:
        """Train all runs that have not ended, and return how they ended.

        On Ctrl-C, running runs save a checkpoint before KeyboardInterrupt is raised.

        Args:
            out: Folder of the study; not needed for a study that was loaded from its folder.
            shard: The part to run, such as ``3/16``; by default, all runs.
            retry_failed: Whether to try runs again that have failed too often.
            cores: Cores to use; by default, all that this process may use.
            memory: Memory to use, such as ``8GiB``; by default, that of the machine.
            gpus: Number of GPUs to use; by default, all.
            imports: Modules that workers import first, such as ones that register environments.
            executor: Where to train; by default, processes on this machine.
            watchers: Objects that follow the study.
            progress: Whether to show a live display; by default, in a terminal only.
        """
        options = RunOptions(
            shard=shard,
            retry_failed=retry_failed,
            cores=cores,
            memory=memory,
            gpus=gpus,
            imports=imports,
            executor=executor,
            watchers=watchers,
            progress=progress,
        )
        result = self.train_runs(out, options)
        raise_interrupt(result.interrupted_by, f"The study in {result.path}")
        return result

    def train_runs(self, out: str | os.PathLike[str] | None, options: RunOptions) -> StudyResult:
        """Run the study like `run`; the result says whether a signal ended it."""
        began = time.monotonic()
        folder = self._folder(out)
        shard, git = options.part, read_git_state()
        with ExitStack() as stack:
            description = self.description or read_description(folder)
            executor = stack.enter_context(options.open_executor(description))
            plan = self._checked_plan(folder, executor)
            watchers = stack.enter_context(options.open_watchers(folder))
            session = stack.enter_context(
                open_session(
                    folder,
                    plan,
                    shard=shard,
                    command=options.command or sys.argv,
                    git=git,
                    host=describe_host(),
                )
            )
            self.path = folder
            executor.prepare(folder)
            runs = self._chosen(session, plan, shard)
            for known in {run.group.folder: run.group for run in runs}.values():
                executor.check(Resources.from_record(known.resources), f"A run of {known.label}")
            _plan_lost_runs_again(session, runs, watchers)
            for watcher in watchers:
                watcher.message(_headline(session.index, runs, shard))
            coordinator = Coordinator(
                session,
                executor,
                runs,
                JobMaker(session.index, plan is not None, tuple(options.imports), git),
                retries=self._retries(folder),
                watchers=watchers,
                retry_failed=options.retry_failed,
                order=executor.in_order(runs) if isinstance(executor, PopulationExecutor) else None,
            )
            signal = coordinator.run()
        return StudyResult(
            folder, session.index.name, runs, time.monotonic() - began, interrupted_by=signal
        )

    def _checked_plan(self, folder: Path, executor: Executor) -> StudyPlan | None:
        """Return the plan of a described study, or None if it was loaded from its folder."""
        if self.description is None:
            return None
        check_folder(folder, self.description.name)
        plan = self.plan()
        for group in plan.groups:
            executor.check(group.resources, f"A run of {group.label}")
        return plan

    def _folder(self, out: str | os.PathLike[str] | None) -> Path:
        if out is None and self.path is None:
            raise ConfigError("Pass the folder of the study: run('my_study').")
        folder = as_path("out", out, "a folder") if out is not None else self.path
        assert folder is not None
        if self.description is None and self.path is not None and folder != self.path:
            raise ConfigError(
                f"out = {shown(str(folder))}: this study was loaded from {self.path}, so leave out "
                "the folder."
            )
        return folder

    def _retries(self, folder: Path) -> int:
        description = self.description or read_description(folder)
        fields = StudyConfig.model_fields
        return description.retries if description is not None else int(fields["retries"].default)

    def _chosen(
        self, session: StudySession, plan: StudyPlan | None, shard: Shard | None
    ) -> list[StudyRun]:
        """Return the runs of this session."""
        every = list(session.index)
        chosen = every if shard is None else shard.of(every)
        if plan is None:
            return chosen
        keys = {run.key for run in planned_runs(session.index, plan)}
        return [run for run in chosen if run.key in keys]


@dataclass(frozen=True)
class JobMaker:
    """Makes the jobs of a session."""

    index: StudyIndex
    is_named: bool
    imports: tuple[str, ...]
    git: dict[str, Any] | None
    fqe_updates: int | None = None

    def __call__(self, run: StudyRun) -> Job:
        """Return the job of a run."""
        index = self.index
        return Job(
            study=os.path.abspath(index.path),
            key=run.key,
            config=run.config,
            resources=Resources.from_record(run.group.resources),
            is_named=self.is_named,
            imports=self.imports,
            fqe_updates=self.fqe_updates,
            origin={
                "study": {"name": index.name, "label": run.label, "task": run.task},
                "git": self.git,
            },
        )


def _entry(run: RunLike) -> Any:
    """Return an entry of `runs` as plain data; a config's own mapping is wrapped."""
    if isinstance(run, TrainConfig):
        return {"config": run.to_dict()}
    if isinstance(run, os.PathLike):
        return os.fspath(run)
    if isinstance(run, Mapping) and "config" not in run and "algo" in run:
        return {"config": dict(run)}
    return run


def check_limits(
    cores: float | None, memory: int | str | None, gpus: int | None
) -> tuple[float | None, int | None, int | None]:
    """Check the limits that the user sets."""
    if cores is not None and not cores > 0:
        raise ConfigError(f"cores = {shown(cores)}: should be more than 0.")
    try:
        size = None if memory is None else parse_size(memory)
    except ValueError as error:
        raise ConfigError(f"memory = {shown(memory)}: {error}.") from None
    return cores, size, None if gpus is None else whole_number("gpus", gpus, least=0)


def _headline(index: StudyIndex, runs: Sequence[StudyRun], shard: Shard | None) -> str:
    """Describe what a session is about to do."""
    labels, tasks = len({run.label for run in runs}), len({run.task for run in runs})
    ended = sum(run.status.has_ended for run in runs)
    part = f", shard {shard}" if shard is not None else ""
    done = f", {ended} already finished" if ended else ""
    return (
        f"Study {index.name}{part}: {counted(len(runs), 'run')} ({counted(labels, 'label')}, "
        f"{counted(tasks, 'task')}){done}, in {index.path}"
    )


def _plan_lost_runs_again(
    session: StudySession, runs: Sequence[StudyRun], watchers: Sequence[Watcher]
) -> None:
    """Check the folders of runs, and plan those again whose folder was deleted."""
    missing = check_run_folders(runs)
    for run in missing:
        session.lost(run)
    for watcher in watchers if missing else ():
        watcher.message(
            f"{counted(len(missing), 'run')} had ended, but the folder was deleted: training again."
        )
