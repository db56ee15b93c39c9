"""Environments in worker processes equal those in this process, whatever happens to a process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rl_training.envs import pool
from rl_training.envs.pool import PooledEnvs, WorkerPool
from rl_training.envs.pool_memory import SharedMemory
from rl_training.envs.vector import LocalEnvs
from rl_training.errors import EnvError
from tests.envs.wander import KilledOnCreation, Wander, makers
from tests.faults.processes import wait_until_gone

COUNT, PROCESSES = 5, 2
KILLED = (
    "its process was killed by SIGKILL, which may mean that the system ran out of memory; resume "
    "the run to continue from its last checkpoint"
)


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerPool]:
    """A pool for all tests that do not end its processes."""
    with closing(WorkerPool(PROCESSES)) as made:
        yield made


@pytest.fixture(scope="module")
def wanderers(shared: WorkerPool) -> PooledEnvs:
    return shared.envs(*makers(COUNT))


def action_of(step: int, count: int = COUNT) -> np.ndarray[Any, Any]:
    return np.random.default_rng(step).uniform(-1, 1, (count, 2)).astype(np.float32)


def assert_equal(found: Any, expected: Any) -> None:
    """Compare dicts, tuples and arrays, with their types."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, tuple):
        for ours, theirs in zip(found, expected, strict=True):
            assert_equal(ours, theirs)
    elif expected.dtype == object:  # final observations, some of which have another type here
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                assert_equal(ours, theirs.astype(np.float32))
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


def kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@contextmanager
def killing_after(seconds: int, own: WorkerPool) -> Iterator[None]:
    """Kill the processes of a pool if a test that may block takes too long."""

    def end(*_: Any) -> None:
        for process in own.processes:
            kill(process)

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


# --- Results ----------------------------------------------------------------------------


@pytest.mark.parametrize("kwargs", [{}, {"masks": True}, {"kind": "discrete"}], ids=str)
@pytest.mark.parametrize("count", [1, COUNT])
def test_results_equal_those_of_local_envs(
    shared: WorkerPool, count: int, kwargs: dict[str, Any]
) -> None:
    made, names = makers(count, **kwargs)
    local, pooled = LocalEnvs(made), shared.envs(made, names)
    assert_equal(pooled.reset(seed=3), local.reset(seed=3))
    local.action_space.seed(0)
    for _ in range(40):
        actions = local.action_space.sample()
        found, expected = pooled.step(actions), local.step(actions)
        assert_equal(found, expected)
    assert pooled.call("received") == local.call("received")
    pooled.close()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "i4", "u1", "?", ">f4", "O"])
def test_actions_keep_their_values(wanderers: PooledEnvs, dtype: str) -> None:
    """They keep their types as well, unless these are unusual."""
    wanderers.reset(seed=0)
    actions = (action_of(0) * 3).astype(dtype)
    wanderers.step(actions)
    used = actions.dtype if dtype not in (">f4", "O") else np.dtype("f4")
    expected = [f"ndarray {used} {row}" for row in actions.astype(used)]
    assert [received[-1] for received in wanderers.call("received")] == expected


def test_discrete_actions_are_whole_numbers_of_their_type(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(2, kind="discrete"))
    envs.reset(seed=0)
    envs.step(np.array([3, 1]))
    assert envs.call("received") == (["int64 int64 3"], ["int64 int64 1"])
    envs.close()


def test_actions_are_not_written_during_a_step(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(COUNT, troubled=range(COUNT), trouble="pause", at=1))
    envs.reset(seed=0)
    first, second = action_of(0), action_of(1)
    envs.step_async(first)
    envs.step_async(second)
    envs.step_wait()
    expected = [f"ndarray float32 {row}" for row in first]
    assert [received[0] for received in envs.call("received")] == expected
    envs.close()


def test_results_other_than_observations_survive_the_next_step(wanderers: PooledEnvs) -> None:
    wanderers.reset(seed=1)
    results = [wanderers.step(action_of(step))[1:] for step in range(8)]
    wanderers.reset(seed=1)
    copies = [deepcopy(wanderers.step(action_of(step))[1:]) for step in range(8)]
    for kept, copy in zip(results, copies, strict=True):
        assert_equal(kept, copy)


def test_each_environment_has_its_own_seed(wanderers: PooledEnvs) -> None:
    alone = [wanderers.reset(seed=seed)[0][0].copy() for seed in (7, 2, 7, 5, 11)]
    np.testing.assert_array_equal(wanderers.reset(seeds=[7, 2, 7, 5, 11])[0], alone)
    part = wanderers.part(1, 4)
    np.testing.assert_array_equal(part.reset(seeds=[11, 5, 7])[0], [alone[4], alone[3], alone[0]])
    np.testing.assert_array_equal(part.reset(seed=5)[0][0], alone[3])


def test_wrong_number_of_seeds_is_rejected(wanderers: PooledEnvs) -> None:
    with pytest.raises(ValueError, match="2 seeds were given for 5 environments"):
        wanderers.reset(seeds=[1, 2])


def test_reset_passes_its_options(wanderers: PooledEnvs) -> None:
    assert (wanderers.reset(options={"place": 4.0})[0] == 4.0).all()


def test_call_returns_values_in_order_of_the_environments(wanderers: PooledEnvs) -> None:
    wanderers.reset(seed=2)
    lengths = wanderers.call("length")
    wanderers.step(action_of(0))
    assert wanderers.part(1, 4).call("length") == wanderers.call("length")[1:4]
    assert len(set(lengths)) > 1


def test_messages_longer_than_a_pipe_do_not_block(wanderers: PooledEnvs) -> None:
    text = "long" * 500_000
    wanderers.step_async(action_of(0))
    assert wanderers.call("size") == (3,) * COUNT
    wanderers.call("reset", options={"place": 1.0, "text": text})
    wanderers.step_wait()


def test_long_infos_do_not_block_the_next_command() -> None:
    made = makers(COUNT, troubled=range(COUNT), trouble="large info", at=1)
    with closing(WorkerPool(1)) as own, killing_after(5, own):
        envs = own.envs(*made)
        envs.reset(seed=3)
        envs.step_async(action_of(0))
        envs.reset(options={"place": 0.0, "text": "long" * 500_000})


def test_output_of_environments_does_not_block(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(2, troubled=[0, 1], trouble="print", at=1))
    envs.reset(seed=0)
    envs.step(action_of(0, 2))
    envs.close()


# --- Parts ------------------------------------------------------------------------------


def test_parts_are_views_with_the_infos_of_their_own_environments(wanderers: PooledEnvs) -> None:
    parts = [wanderers.part(0, 2), wanderers.part(2, 3), wanderers.part(3, 5)]
    wanderers.reset(seed=5)
    for step in range(12):
        wanderers.step_async(action_of(step))
        found = [part.step_wait() for part in parts]
        whole = wanderers.step_wait()
        for values, own in zip(whole[:4], zip(*found, strict=True), strict=False):
            np.testing.assert_array_equal(np.concatenate(own), values)
        for part, own, start in zip(parts, found, (0, 2, 3), strict=True):
            assert np.shares_memory(part.observations, wanderers.observations)
            ended = own[2] | own[3]
            assert ("final_obs" in own[-1]) == ended.any()
            for index in np.flatnonzero(ended):
                final = own[-1]["final_info"]
                assert final["length"][index] == whole[-1]["final_info"]["length"][start + index]


def test_parts_step_on_their_own(wanderers: PooledEnvs) -> None:
    wanderers.reset(seed=5)
    expected = wanderers.step(action_of(1))
    kept = (expected[0].copy(), *expected[1:4])
    wanderers.reset(seed=5)
    for start in (3, 0, 1, 2, 4):  # all steps run at the same time
        wanderers.part(start, start + 1).step_async(action_of(1)[start : start + 1])
    assert_equal(wanderers.step_wait()[:4], kept)


def test_parts_of_parts_count_from_their_start(wanderers: PooledEnvs) -> None:
    inner = wanderers.part(1, 5).part(2, 3)
    wanderers.reset(seed=9)
    np.testing.assert_array_equal(inner.observations[0], wanderers.observations[3])
    with pytest.raises(IndexError, match="there are no environments 0 to 2 of 1"):
        inner.part(0, 2)


@pytest.fixture(scope="module")
def twins(shared: WorkerPool) -> tuple[PooledEnvs, list[Any]]:
    """Environments in processes, and the same ones in this process."""
    made, names = makers(COUNT, masks=True)
    return shared.envs(made, names), [make() for make in made]


@hypothesis_settings(max_examples=20)
@given(masks=st.lists(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT), max_size=12))
def test_inactive_environments_do_not_step(
    twins: tuple[PooledEnvs, list[Any]], masks: list[list[bool]]
) -> None:
    envs, each = twins
    envs.reset(seed=0)
    for index, env in enumerate(each):
        env.reset(seed=index)
    expected: list[Any] = [
        *(envs.observations.copy(), envs.rewards.copy()),
        *(envs.terminations.copy(), envs.truncations.copy()),
    ]
    for step, mask in enumerate(masks):
        actions, active = action_of(step), np.array(mask)
        envs.step_async(actions, active)
        finals: dict[int, Any] = {}
        legal: dict[int, Any] = {}
        for index in np.flatnonzero(active).tolist():
            obs, *values, info = each[index].step(actions[index].copy())
            if values[1] or values[2]:
                finals[index] = obs, info["length"]
                obs, info = each[index].reset()
            legal[index] = info["action_mask"]
            for array, value in zip(expected, (obs, *values), strict=True):
                array[index] = value
        *found, infos = envs.step_wait()
        assert_equal(tuple(found), tuple(expected))
        assert set(np.flatnonzero(infos.get("_final_obs", []))) == finals.keys()
        for index, (obs, length) in finals.items():
            np.testing.assert_array_equal(infos["final_obs"][index], obs.astype(np.float32))
            assert infos["final_info"]["length"][index] == length
        assert set(np.flatnonzero(infos.get("_action_mask", []))) == legal.keys()
        for index, mask_of_one in legal.items():
            np.testing.assert_array_equal(infos["action_mask"][index], mask_of_one)


def test_without_autoreset_episodes_start_when_they_are_reset(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(COUNT), autoreset=False)
    envs.reset(seed=0)
    playing = np.ones(COUNT, dtype=bool)
    for step in range(4):
        envs.step_async(action_of(step), playing)
        *_, terminations, truncations, infos = envs.step_wait()
        ended = (terminations | truncations) & playing
        assert set(np.flatnonzero(infos.get("_final_obs", []))) == set(np.flatnonzero(ended))
        playing &= ~ended
    assert not playing.any()
    np.testing.assert_array_equal(envs.observations, envs.final_observations)
    assert envs.call("clock") == envs.call("length")
    envs.part(2, 4).reset(seed=2)
    assert [clock == 0 for clock in envs.call("clock")] == [False, False, True, True, False]
    envs.close()


def test_groups_in_one_pool_are_independent(shared: WorkerPool, wanderers: PooledEnvs) -> None:
    other = shared.envs(*makers(3, size=7))
    observations = {}
    for order in ("alone", "together"):
        wanderers.reset(seed=4)
        other.reset(seed=4)
        for step in range(6):
            wanderers.step_async(action_of(step))
            if order == "together":
                other.step_async(action_of(step, 3))
            wanderers.step_wait()
        observations[order] = wanderers.observations.copy()
    np.testing.assert_array_equal(observations["together"], observations["alone"])
    assert other.observations.shape == (3, 7)
    other.close()
    wanderers.step(action_of(0))


def test_environments_keep_their_pool_running() -> None:
    envs = WorkerPool(1).envs(*makers(1))
    gc.collect()
    envs.reset(seed=0)
    (process,) = envs.processes
    del envs
    gc.collect()
    process.join(10)
    assert process.exitcode == 0


# --- Errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("error", "ValueError: out of fuel"),
        ("exit", "SystemExit"),
        ("unsendable error", "UnsendableError: the port is taken"),
        ("unsendable info", "TypeError: cannot pickle"),
    ],
)
def test_an_error_reaches_only_its_environment(shared: WorkerPool, trouble: str, text: str) -> None:
    envs = shared.envs(*makers(COUNT, troubled=[1], trouble=trouble, at=2, masks=True))
    reference = shared.envs(*makers(COUNT, masks=True))
    for each in (envs, reference):
        each.reset(seed=6)
        each.step(action_of(0))
        each.step_async(action_of(1))
    assert envs.wait()
    assert not reference.wait()
    for start in (0, 2, 3, 4):
        part = slice(start, start + 1)
        assert_equal(envs.part(start, start + 1).step_wait()[0], reference.observations[part])
    for view in (envs, envs.part(1, 2), envs.part(0, 3)):
        with pytest.raises(EnvError, match=f"^env 1: its process failed with {text}"):
            view.step_wait()
    active = np.arange(COUNT) != 1
    for each in (envs, reference):
        each.step_async(action_of(2), active)
    assert_equal(envs.step_wait()[1][active], reference.step_wait()[1][active])
    envs.close()
    reference.close()


def test_results_that_cannot_be_read_fail_every_environment_that_lost_its_own(
    shared: WorkerPool,
) -> None:
    """Otherwise, episodes of the others would end without their last infos."""
    envs = shared.envs(*makers(4, troubled=[1], trouble="unreadable info", at=1, masks=True))
    envs.reset(seed=6)
    envs.step_async(action_of(0, 4))
    for index in (0, 1):
        with pytest.raises(EnvError, match=f"^env {index}: its process failed with ValueError"):
            envs.part(index, index + 1).step_wait()
    envs.part(2, 4).step_wait()
    envs.close()


def test_an_error_has_the_traceback_of_its_process(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(1, troubled=[0], trouble="error", at=1))
    envs.reset(seed=0)
    with pytest.raises(EnvError) as caught:
        envs.step(action_of(0, 1))
    assert "in _raise" in str(caught.value.__cause__)
    envs.close()


def test_error_in_reset_and_call_names_its_environment(wanderers: PooledEnvs) -> None:
    with pytest.raises(EnvError, match=r"^env 0: its process failed with AttributeError"):
        wanderers.call("no_such_name")
    with pytest.raises(EnvError, match=r"^env 3: its process failed with ValueError"):
        wanderers.part(3, 5).reset(options={"place": np.zeros(5)})
    wanderers.reset(seed=0)


def test_arguments_that_cannot_be_sent_leave_the_pool_usable(wanderers: PooledEnvs) -> None:
    with pytest.raises(Exception, match="pickle"):
        wanderers.reset(options={"place": lambda: 0})
    wanderers.reset(seed=0)


def test_environments_with_other_spaces_are_rejected(shared: WorkerPool) -> None:
    with pytest.raises(EnvError, match=r"^two has other spaces than one, but environments that"):
        shared.envs([Wander, partial(Wander, size=4)], ["one", "two"])


def test_a_constructor_that_fails_leaves_the_pool_usable(shared: WorkerPool) -> None:
    with pytest.raises(EnvError, match=r"^two: its process failed with ValueError"):
        shared.envs([Wander, partial(Wander, size=-1)], ["one", "two"])
    shared.envs(*makers(2)).close()


def test_a_call_after_close_is_an_error(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(2))
    envs.reset(seed=0)
    envs.close()
    for ask in (lambda: envs.step(action_of(0, 2)), lambda: envs.reset(seed=0)):
        with pytest.raises(EnvError, match=r"^env 0: its process failed with a call after close"):
            ask()


def test_closed_parts_leave_the_others_running(shared: WorkerPool) -> None:
    envs = shared.envs(*makers(COUNT))
    envs.reset(seed=0)
    envs.part(0, 2).close()
    envs.step_async(action_of(0), np.arange(COUNT) >= 2)
    envs.step_wait()
    envs.close()


# --- Processes --------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_killed_process_takes_only_its_environments_with_it(moment: str) -> None:
    with closing(WorkerPool(PROCESSES)) as own:
        envs, reference = own.envs(*makers(COUNT)), LocalEnvs(makers(COUNT)[0])
        envs.reset(seed=0)
        reference.reset(seed=0)
        if moment == "before":
            kill(envs.processes[1])
        for step in range(6):
            envs.step_async(action_of(step))
            if moment == "during" and step == 2:
                kill(envs.processes[1])
            expected = reference.step(action_of(step))
            assert_equal(envs.part(0, 3).step_wait()[0], expected[0][:3])
        with pytest.raises(EnvError, match=f"^env 3 to env 4: their process {KILLED[12:]}$"):
            envs.step_wait()
        with pytest.raises(EnvError, match=f"^env 4: {KILLED}$"):
            envs.part(4, 5).call("length")
        assert envs.has_lost_process
        assert not envs.part(0, 3).has_lost_process


def test_new_environments_are_created_in_the_processes_that_are_left() -> None:
    with closing(WorkerPool(PROCESSES)) as own:
        first = own.envs(*makers(2))
        kill(own.processes[0])
        second = own.envs(*makers(3))
        second.reset(seed=0)
        second.step(action_of(0, 3))
        assert second.processes == [own.processes[1]]
        assert first.has_lost_process
        kill(own.processes[1])
        with pytest.raises(EnvError, match=r"^all worker processes have ended; resume the run"):
            own.envs(*makers(1))


def test_a_process_that_is_killed_during_creation_is_one_sentence() -> None:
    with closing(WorkerPool(PROCESSES)) as own:
        with pytest.raises(EnvError, match=f"^b: {KILLED}$"):
            own.envs([Wander, KilledOnCreation], ["a", "b"])
        own.envs(*makers(2)).close()


def test_memory_that_cannot_be_sent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, because this process has too many open files."""

    def send(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(SharedMemory, "send", send)
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.3)
    with closing(WorkerPool(1)) as own, pytest.raises(OSError, match="Too many open files"):
        own.envs(*makers(1))


def test_memory_that_cannot_be_received_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(_memory: Any, connection: Any, _process_id: int) -> None:
        connection.send((0, ""))
        connection.send_bytes(b"")

    monkeypatch.setattr(SharedMemory, "send", send)
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.3)
    with (
        closing(WorkerPool(1)) as own,
        pytest.raises(EnvError, match=r"^env 0: its process failed with"),
    ):
        own.envs(*makers(1))


def test_processes_end_when_the_pool_is_closed() -> None:
    own = WorkerPool(3)
    own.envs(*makers(2)).reset(seed=0)  # one of the processes has no environments
    own.close()
    own.close()
    assert [process.exitcode for process in own.processes] == [0, 0, 0]


def test_a_process_that_hangs_is_killed_when_its_environments_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.3)
    with closing(WorkerPool(1)) as own:
        envs = own.envs(*makers(1, troubled=[0], trouble="hang", at=1))
        envs.reset(seed=0)
        envs.step_async(action_of(0, 1))
        envs.close()
        own.processes[0].join(5)
        assert own.processes[0].exitcode == -signal.SIGKILL


TRAINER = """
import multiprocessing, sys, time
from functools import partial
from rl_training.envs.pool import WorkerPool
from tests.envs.wander import Hanging, makers
if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["tests.envs.wander"])
    pool = WorkerPool(2)
    envs = pool.envs(*makers(2))
    pool.envs([partial(Hanging, sys.argv[1])], ["hanging"])
    envs.reset(seed=0)
    print(*[process.pid for process in pool.processes], flush=True)
    time.sleep(60)
"""


def test_processes_end_when_their_trainer_is_killed(tmp_path: Path) -> None:
    """Even one whose environment hangs when it is closed."""
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    command = [sys.executable, str(script), str(tmp_path / "hanging")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as trainer:
        assert trainer.stdout is not None
        pids = set(map(int, trainer.stdout.readline().split()))
        trainer.kill()
    assert len(pids) == 2
    assert int((tmp_path / "hanging").read_text()) in pids
    assert not wait_until_gone(pids, 8.0)


def test_no_files_remain_open_after_pools_are_closed() -> None:
    def cycle() -> None:
        with closing(WorkerPool(1)) as own:
            own.envs(*makers(1)).reset(seed=0)

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    cycle()
    before = open_files()
    for _ in range(20):
        cycle()
    assert open_files() == before


def test_no_files_remain_open_after_environments_are_closed(
    shared: WorkerPool, wanderers: PooledEnvs
) -> None:
    def open_files() -> list[int]:
        gc.collect()
        return [len(os.listdir("/proc/self/fd")), *wanderers.call("descriptors")]

    before = open_files()
    for _ in range(20):
        envs = shared.envs(*makers(2))
        envs.reset(seed=0)
        envs.close()
        del envs
    assert open_files() == before


# --- Cores ------------------------------------------------------------------------------

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="the system cannot bind processes to cores"
)


def cores_of_processes(own: WorkerPool) -> list[Any]:
    envs = own.envs(*makers(len(own.processes)))
    return list(envs.call("cores"))


@needs_affinity
@pytest.mark.parametrize(
    ("available", "processes", "pinned"),
    [(lambda cores: cores[:1], 1, False), (lambda cores: [-1, *cores], 1, True)],
    ids=["no free core", "a free core"],
)
def test_processes_are_bound_to_cores_if_one_is_left(
    monkeypatch: pytest.MonkeyPatch,
    available: Callable[[list[int]], list[int]],
    processes: int,
    pinned: bool,
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(pool, "_available_cores", lambda: available(cores))
    with closing(WorkerPool(processes, pin=True)) as own:
        assert cores_of_processes(own) == [cores[:1] if pinned else cores] * processes


@needs_affinity
def test_a_core_that_is_not_available_any_more_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_available_cores", lambda: [0, 100_000])
    with closing(WorkerPool(1, pin=True)) as own:
        assert cores_of_processes(own) == [sorted(os.sched_getaffinity(0))]


def test_pools_need_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_yield", raising=False)
    with closing(WorkerPool(1)) as own:
        own.envs(*makers(1)).reset(seed=0)
