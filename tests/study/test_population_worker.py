"""Populations whose environments step in worker processes, as they do on a GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rl_training.api.training import resume
from rl_training.runtime.checkpointing import list_steps
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.runtime.stop_reason import StopKind, StopReason
from rl_training.study.folder import open_session
from rl_training.study.jobs import Ended, Evaluated, Event, Job
from rl_training.study.population_worker import train_population
from rl_training.study.populations import Population
from rl_training.study.records import RUNS
from rl_training.study.worker import StopRequest
from tests.faults.runs import assert_equal_runs, final_state
from tests.study.fragile import ENV_ID
from tests.study.small import job_for, small_plan

SEEDS, PROCESSES = 3, 2
FRAGILE = "tests.study.fragile"
INTERRUPT = StopReason(StopKind.SIGNAL, "SIGTERM")
PRUNED = StopReason(StopKind.REQUESTED, "pruned")


def make_jobs(
    folder: Path, algo: str = "sac", *, env_kwargs: dict[str, Any] | None = None, **settings: Any
) -> list[Job]:
    """Plan a study of three seeds, and return its jobs; short episodes save time."""
    settings |= {"eval_episodes": 2, "env_kwargs": {"max_episode_steps": 40} | (env_kwargs or {})}
    plan = small_plan(algos=(algo,), seeds=SEEDS, settings=settings)
    with open_session(folder / "study", plan) as session:
        return [job_for(run) for run in session.index]


def run_jobs(
    jobs: Sequence[Job],
    *,
    stops: dict[int, tuple[int, StopReason]] | None = None,
    kills: tuple[int, int] | None = None,
    processes: int = PROCESSES,
) -> list[Ended]:
    """Train the jobs as a population, and return how they ended.

    ``stops`` has the evaluation at which a member stops, by its seed, and the reason. ``kills`` has
    a seed and the step of the evaluation after which the last process is killed.
    """
    ended: dict[str, Ended] = {}
    requests = {job.key: StopRequest() for job in jobs}

    def report(event: Event) -> None:
        if isinstance(event, Ended):
            ended[event.key] = event
        if isinstance(event, Evaluated):
            step, reason = (stops or {}).get(seed_of(event), (None, None))
            if step == event.step and reason is not None:
                requests[event.key].set(reason)
            if kills == (seed_of(event), event.step):
                kill_process(processes - 1)

    population = Population(tuple(jobs), tuple(job.key for job in jobs))
    train_population(population, report, requests, processes=processes)
    return [ended[job.key] for job in jobs]


def kill_process(index: int) -> None:
    (process,) = (
        each for each in multiprocessing.active_children() if each.name == f"Worker-{index}"
    )
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def weights_of(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(list_steps(run_dir)[-1] / "model.safetensors")


def seed_of(event: Event) -> int:
    return int(event.key.rpartition("seed")[2])


def statuses(ended: Sequence[Ended]) -> list[str]:
    return [each.status.value for each in ended]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    """A population that was not interrupted."""
    jobs = make_jobs(tmp_path_factory.mktemp("reference"))
    assert statuses(run_jobs(jobs)) == ["finished"] * SEEDS
    return jobs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_envs": 2, "env_kwargs": {"wrappers": {"reward": {"scale": 0.1}}}},
        {"exploration_hold": 4},
        {"algo": "td3", "normalize_observations": True},
    ],
    ids=["sac", "two environments", "held noise", "running statistics"],
)
def test_members_learn_what_they_learn_without_processes(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    both = {
        processes: make_jobs(tmp_path / str(processes), **settings) for processes in (0, PROCESSES)
    }
    for processes, jobs in both.items():
        assert statuses(run_jobs(jobs, processes=processes)) == ["finished"] * SEEDS
    for apart, together in zip(*both.values(), strict=True):
        expected, found = (weights_of(job.run_dir) for job in (apart, together))
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)
        for ours, theirs in zip(
            read_metrics(together.run_dir), read_metrics(apart.run_dir), strict=True
        ):
            assert ours.keys() == theirs.keys()
            for key in ours:
                if not key.startswith("time/"):
                    assert ours[key] == pytest.approx(theirs[key], rel=1e-2, abs=1e-3), key


def test_members_resume_exactly(reference: list[Job], tmp_path: Path) -> None:
    """They were saved at different steps."""
    jobs = make_jobs(tmp_path)
    stops = {0: (100, INTERRUPT), 1: (50, INTERRUPT), 2: (100, INTERRUPT)}
    assert statuses(run_jobs(jobs, stops=stops)) == ["interrupted"] * SEEDS
    assert statuses(run_jobs(jobs)) == ["finished"] * SEEDS
    for job, expected in zip(jobs, reference, strict=True):
        assert_equal_runs(job.run_dir, expected.run_dir)


def test_a_member_that_stops_leaves_the_others_unchanged(
    reference: list[Job], tmp_path: Path
) -> None:
    jobs = make_jobs(tmp_path)
    assert statuses(run_jobs(jobs, stops={1: (50, PRUNED)})) == ["finished", "stopped", "finished"]
    for member in (0, 2):
        assert_equal_runs(jobs[member].run_dir, reference[member].run_dir)


def test_a_member_continues_alone(reference: list[Job], tmp_path: Path) -> None:
    """Its environments and the noise of its actions continue where the population stopped."""
    jobs = make_jobs(tmp_path)
    run_jobs(jobs, stops={member: (100, INTERRUPT) for member in range(SEEDS)})
    resume(jobs[1].run_dir)
    found, expected = (weights_of(jobs[1].run_dir) for jobs in (jobs, reference))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stream", [Stream.ENVIRONMENT, Stream.EVALUATION])
def test_an_environment_that_fails_leaves_the_others_unchanged(
    stream: Stream, tmp_path: Path
) -> None:
    ended = []
    for name, seeds in {"fine": [], "fails": [derive_seed(1, stream)]}.items():
        jobs = make_jobs(tmp_path / name, env_id=ENV_ID, env_kwargs={"seeds": seeds})
        ended.append(run_jobs([replace(job, imports=(FRAGILE,)) for job in jobs]))
    fine, failed = ended
    assert statuses(fine) == ["finished"] * SEEDS
    assert statuses(failed) == ["finished", "failed", "finished"]
    assert "this episode is fragile" in str(failed[1].reason)
    for member in (0, 2):
        found, expected = (
            tmp_path / name / "study" / RUNS / failed[member].key for name in ("fails", "fine")
        )
        assert final_state(found)["metrics"] == final_state(expected)["metrics"]
        for name, tensor in weights_of(expected).items():
            assert torch.equal(weights_of(found)[name], tensor), name


@pytest.mark.parametrize("seed", [0, 2], ids=["before a save", "after a save"])
def test_a_killed_process_fails_only_the_members_whose_environments_it_had(
    seed: int, reference: list[Job], tmp_path: Path
) -> None:
    """Evaluations continue in the other process; a member that failed can be resumed."""
    jobs = make_jobs(tmp_path)
    ended = run_jobs(jobs, kills=(seed, 50))
    assert statuses(ended) == ["finished", "finished", "failed"]
    assert "its process was killed by SIGKILL" in str(ended[2].reason)
    for member in (0, 1):
        assert_equal_runs(jobs[member].run_dir, reference[member].run_dir)
    assert statuses(run_jobs(jobs)) == ["finished"] * SEEDS
    assert_equal_runs(jobs[2].run_dir, reference[2].run_dir)


def test_members_fail_together_if_their_only_process_is_killed(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path)
    ended = run_jobs(jobs, kills=(2, 50), processes=1)
    assert statuses(ended) == ["failed"] * SEEDS
    for each in ended:
        assert "its process was killed by SIGKILL" in str(each.reason)


def test_members_step_their_own_environments_if_no_process_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("rl_training.runtime.population.sharing.WorkerPool", fail)
    assert statuses(run_jobs(make_jobs(tmp_path))) == ["finished"] * SEEDS


def test_members_step_their_own_environments_if_these_cannot_be_moved(tmp_path: Path) -> None:
    """Here, because they have another form in a worker process."""
    jobs = make_jobs(tmp_path, env_id=ENV_ID, env_kwargs={"differs_in_a_worker": True})
    jobs = [replace(job, imports=(FRAGILE,)) for job in jobs]
    assert statuses(run_jobs(jobs)) == ["finished"] * SEEDS
