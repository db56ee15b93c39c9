"""The executor of populations: trains many runs as one program on a device of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.jobs import Event, Job
from rl_training.study.launching import Launcher
from rl_training.study.local_executor import LocalExecutor
from rl_training.study.populations import Population, population_resources, populations_of
from rl_training.study.resources import Budget, Resources, machine_budget


@dataclass
class _Group:
    """The runs of a population, and the jobs with which its next worker starts."""

    name: str
    runs: list[StudyRun]
    resources: Resources
    jobs: list[Job] = field(default_factory=list)
    gpu: str | None = None


class PopulationExecutor(LocalExecutor):
    """Trains runs that differ only in seeds and numbers together, in one process per population.

    Runs that cannot be trained with others are populations of one.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        launcher: Launcher | None = None,
        *,
        members: int | None = None,
    ) -> None:
        """Create an executor.

        Args:
            budget: What it may use; by default, the whole machine.
            launcher: How worker processes start; by default, as fits the system.
            members: Most runs in a population; by default, all that can be trained together.
        """
        super().__init__(machine_budget() if budget is None else budget, launcher)
        self._members = members
        self._groups: dict[str, _Group] = {}
        """The population of each run, by the run's key."""

    def prepare(self, study: Path) -> None:
        """Form the populations of a study."""
        self.form(StudyIndex.open(study))

    def form(self, runs: Iterable[StudyRun]) -> list[list[StudyRun]]:
        """Form populations of runs in place of the earlier ones, which have ended; return them.

        Raises:
            ConfigError: A population would never fit.
        """
        populations = list(populations_of(runs, self._members))
        self._groups.clear()
        for number, members in enumerate(populations):
            needs = population_resources(members, self.budget.cores)
            self.budget.check(needs, f"A population of {len(members)} runs")
            group = _Group(f"population {number}", members, needs)
            self._groups |= {run.key: group for run in members}
        return populations

    def in_order(self, runs: Iterable[StudyRun]) -> list[StudyRun]:
        """Sort runs so that those of a population follow each other, and start together."""
        position = {key: number for number, key in enumerate(self._groups)}
        return sorted(runs, key=lambda run: position[run.key])

    def at_once(self, need: Resources) -> int:
        """Return how many runs of a population train at the same time."""
        return max((len(group.runs) for group in self._groups.values()), default=1)

    def submit(self, job: Job) -> bool:
        """Accept a job if its population can start now, which `wait` does."""
        group = self._groups[job.key]
        if group.name in self._workers:
            return False
        if not group.jobs:
            try:
                group.gpu = self.budget.take(group.name, group.resources)
            except LookupError:
                return False
        group.jobs.append(job)
        return True

    def wait(self, seconds: float) -> Sequence[Event]:
        """Start the populations whose jobs were accepted, then wait for events."""
        for group in {id(group): group for group in self._groups.values() if group.jobs}.values():
            population = _population(group)
            self._start(group.name, population.jobs, population.to_json())
            group.jobs = []
        return super().wait(seconds)


def _population(group: _Group) -> Population:
    """Return the work of a population: its jobs, and placeholders for its other runs."""
    jobs = {job.key: replace(job, gpu=group.gpu, resources=group.resources) for job in group.jobs}
    example = next(iter(jobs.values()))
    rows = [
        jobs.get(run.key) or replace(example, key=run.key, config=run.config) for run in group.runs
    ]
    return Population(tuple(rows), tuple(jobs))
