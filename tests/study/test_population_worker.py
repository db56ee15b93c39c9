"""Populations whose environments step in worker processes, as they do on a GPU."""

from __future__ import annotations

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


def make_jobs(folder: Path, algo: str = "sac", **settings: Any) -> list[Job]:
    """Plan a study of three seeds, and return its jobs."""
    plan = small_plan(algos=(algo,), seeds=SEEDS, settings={"eval_episodes": 2, **settings})
    with open_session(folder / "study", plan) as session:
        return [job_for(run) for run in session.index]


def run_jobs(
    jobs: Sequence[Job],
    *,
    stops: dict[int, tuple[int, StopReason]] | None = None,
    processes: int = PROCESSES,
) -> list[Ended]:
    """Train the jobs as a population, and return how they ended.

    ``stops`` has the evaluation at which a member stops, by its seed, and the reason.
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

    population = Population(tuple(jobs), tuple(job.key for job in jobs))
    train_population(population, report, requests, processes=processes)
    return [ended[job.key] for job in jobs]


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
