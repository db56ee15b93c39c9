"""Train the runs of a population in one process, with their updates as one program.

Every run is an ordinary run with a session of its own, and takes turns with the others between its
updates. A run that fails or stops early leaves the program, and the others continue unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.experiment.build import build_algorithm
from rl_training.experiment.config import saved_config
from rl_training.experiment.machine import choose_device, usable_cores
from rl_training.experiment.memory import check_population_memory
from rl_training.experiment.user_imports import import_user_module
from rl_training.runtime.engine import Engine
from rl_training.runtime.population.engine import PopulationEngine
from rl_training.runtime.population.sharing import SharedParts
from rl_training.runtime.session import Session
from rl_training.runtime.signals import stop_on_signals
from rl_training.runtime.stop_reason import StopReason
from rl_training.study.jobs import Job
from rl_training.study.populations import Population
from rl_training.study.resources import Resources
from rl_training.study.worker import Report, StopRequest, describe_failure, job_steps, job_task


class _Member:
    """A run of the population: its steps, and the updates that it waits for."""

    def __init__(self, job: Job, report: Report, stop: StopRequest) -> None:
        self.key = job.key
        self._report = report
        self._steps = job_steps(job, report, stop)
        self._session: Session | None = None
        self.updates: int | None = 0
        """Updates that are due; None while environments step in other processes."""

    @property
    def session(self) -> Session:
        """The session of a run that has started."""
        assert self._session is not None
        return self._session

    def advance(self, error: Exception | None = None) -> bool:
        """Continue until updates are due, or fail with an error; return False at the end."""
        try:
            due = next(self._steps) if error is None else self._steps.throw(error)
        except StopIteration as ended:
            self._report(ended.value)
            return False
        self._session, self.updates = due
        return True


def train_population(
    population: Population,
    report: Report,
    stops: Mapping[str, StopRequest],
    *,
    processes: int | None = None,
) -> None:
    """Start or continue the runs of a population, and report how each attempt ends.

    ``processes`` step the environments of all runs; 0 lets each run step its own. By default, there
    is one for each environment or free core if the device is a GPU, and none otherwise. If other
    populations share the GPU, the free cores are those of its runs.
    """

    def stop_all(reason: StopReason) -> None:
        for stop in stops.values():
            stop.set(reason)

    jobs = population.jobs
    with stop_on_signals(stop_all):
        try:
            _check_memory(population)
        except Exception as error:  # is reported as the failure of each run
            for job in jobs:
                report(describe_failure(job, error))
            return
        members = [_Member(job, report, stops[job.key]) for job in jobs]
        members = [member for member in members if member.advance()]
        if members:
            _train(members, population, processes)


def _check_memory(population: Population) -> None:
    """Reject a population that does not fit, before any run starts."""
    job = population.jobs[0]
    for module in job.imports:
        import_user_module(module)
    task = job_task(job)
    rows = task.data.rows_in_memory if task.data is not None else 0
    device, count = choose_device(task.config.device), len(population.rows)
    check_population_memory(task.config, task.spec, device, count, rows)


def _train(members: list[_Member], population: Population, processes: int | None) -> None:
    try:
        engine = _build_engine(members, population.rows)
    except Exception as error:  # is reported as the failure of each run
        for member in members:
            member.advance(error)
        return
    with ExitStack() as stack:
        shared = SharedParts(engine, [member.session for member in members])
        stack.callback(shared.close)
        resources = population.jobs[0].resources
        shared.start(
            _processes(members, resources) if processes is None else processes,
            pin=resources.gpus == 1.0,
            say=members[0].session.say,
        )
        rows = {member.key: row for row, member in enumerate(members)}
        turn, failure = list(members), None
        while turn:
            shared.begin_turn([rows[member.key] for member in turn])
            ended = [member for member in turn if not member.advance(failure)]
            stepping = [member for member in turn if member.updates is None and member not in ended]
            shared.collect([rows[member.key] for member in stepping])
            ended += [member for member in stepping if not member.advance()]
            shared.end_turn()
            for member in ended:
                engine.retire(member.session.engine)
                members.remove(member)
            step = min((member.session.state.step for member in members), default=0)
            turn = [member for member in members if member.session.state.step == step]
            failure = _update(engine, turn)


def _processes(members: Sequence[_Member], resources: Resources) -> int:
    """Return how many processes step the environments: none unless a GPU updates meanwhile."""
    sessions = [member.session for member in members]
    if sessions[0].policy.device.type != "cuda":
        return 0
    envs = [1 if each.collector is None else each.collector.num_envs for each in sessions]
    cores = usable_cores() if resources.gpus == 1.0 else int(resources.cpus)
    return min(sum(envs), max(0, cores - 1))


def _update(engine: PopulationEngine, members: Sequence[_Member]) -> Exception | None:
    """Run the updates that the members wait for; return the error that has prevented it."""
    updates = members[0].updates if members else 0
    try:
        if updates:
            engine.run(updates, [member.session.engine for member in members])
    except Exception as error:
        return error
    return None


def _build_engine(members: Sequence[_Member], rows: Sequence[Job]) -> PopulationEngine:
    sessions = {member.key: member.session for member in members}
    example = members[0].session

    def say(text: str) -> None:
        for member in members:
            member.session.say(text)

    def row(job: Job) -> Engine | Algorithm:
        if job.key in sessions:
            return sessions[job.key].engine
        config = saved_config(job.config).resolved()
        return build_algorithm(config, example.policy.spec, torch.device(example.policy.device))

    return PopulationEngine([row(job) for job in rows], say=say, warn=say)
