"""Environments in worker processes: a dead worker ends the run immediately with one sentence."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import resume, train
from rl_training.envs import EnvConfig, make_training_envs, pool
from rl_training.errors import EnvError, TrainingError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import list_steps
from rl_training.runtime.session import Session
from tests.comparing import assert_same_run
from tests.envs.odd_envs import WALK

Config = Callable[..., dict[str, Any]]
SECONDS = 8.0
"""Time limit for the end of a run on a busy machine."""


def workers(num_envs: int = 3, **kwargs: Any) -> pool.PooledEnvs:
    envs = make_training_envs(WALK, EnvConfig(vectorization="async", **kwargs), num_envs)
    assert isinstance(envs, pool.PooledEnvs)
    return envs


@contextmanager
def quickly() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < SECONDS


def play(envs: pool.PooledEnvs, steps: int) -> None:
    for _ in range(steps):
        envs.step(np.zeros((envs.num_envs, 1), np.float32))


class KillAt(Callback):
    """Kills the last worker after a step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.killed = 0.0

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            assert session.collector is not None
            envs: Any = session.collector.envs
            os.kill(envs.processes[-1].pid, signal.SIGKILL)
            envs.processes[-1].join()
            self.killed = time.monotonic()


KILLED = (
    rf"{WALK} \(environment 1\): its process was killed by SIGKILL, which may mean that the system "
    "ran out of memory; resume the run to continue from its last checkpoint$"
)


@pytest.mark.parametrize(("step", "prefix"), [(60, "at step 61, "), (40, "")])
def test_killed_worker_ends_the_run_and_resume_continues_it(
    step: int, prefix: str, small_config: Config
) -> None:
    """During collection, and just before a save requests the state of every worker."""
    config = small_config(env_id=WALK, num_envs=2, env_kwargs={"vectorization": "async"})
    killing = KillAt(step)
    with pytest.raises(EnvError, match=f"^{prefix}{KILLED}"):
        train(config, callbacks=[killing])
    assert time.monotonic() - killing.killed < SECONDS
    (run_dir,) = Path(config["output_dir"]).iterdir()
    assert json.loads((run_dir / "run.json").read_text())["state"] == "failed"
    assert list_steps(run_dir)[-1].name == ("step_000000040" if step == 60 else "step_000000000")
    assert_same_run(train(config), resume(run_dir))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV, signal.SIGRTMIN])
def test_every_call_detects_a_dead_worker(sent: signal.Signals) -> None:
    for ask in (
        lambda envs: play(envs, 1),
        lambda envs: envs.reset(seed=0),
        lambda envs: envs.call("capture"),
    ):
        envs = workers()
        envs.reset(seed=0)
        process: Any = envs.processes[1]
        os.kill(process.pid, sent)
        with quickly():
            with pytest.raises(EnvError, match=r"\(environment 1\): its process was killed by SIG"):
                ask(envs)
            envs.close()
        assert not any(process.is_alive() for process in envs.processes)


@pytest.mark.parametrize("method", ["reset", "step"])
def test_worker_that_exits_silently_is_reported(method: str) -> None:
    envs = workers(2, trouble="os_exit", method=method, at=2)
    with quickly():
        envs.reset(seed=0)
        with pytest.raises(EnvError, match=r"ment 0\): its process ended with exit code 3; resume"):
            play(envs, 6)
        envs.close()


def test_failing_constructor_in_a_worker_is_one_sentence() -> None:
    def make(*, fails: bool) -> gym.Env[Any, Any]:
        if fails:
            raise TrainingError("the port is taken")
        return gym.make("Pendulum-v1")

    makers = [partial(make, fails=False), partial(make, fails=True)]
    with pytest.raises(TrainingError, match=r"^the port is taken$") as caught:
        pool.WorkerPool(2).envs(makers, ["a", "b"])
    assert "in make" in str(caught.value.__cause__)  # shown by --debug


def test_close_does_not_wait_for_dead_or_hanging_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "CLOSE_SECONDS", 0.5)
    envs = workers(trouble="hangs_in_a_worker", method="close")
    envs.reset(seed=0)
    process: Any = envs.processes[0]
    os.kill(process.pid, signal.SIGKILL)
    with quickly():
        envs.close()
    assert not any(process.is_alive() for process in envs.processes)


def test_close_during_a_step_closes_environments(tmp_path: Path) -> None:
    envs = workers(2)
    envs.reset(seed=0)
    envs.step_async(np.zeros((2, 1), np.float32))
    with quickly():
        envs.close()
    assert [process.exitcode for process in envs.processes] == [0, 0]


def test_failing_close_in_a_worker_ends_it_cleanly() -> None:
    envs = workers(2, trouble="error", method="close")
    envs.reset(seed=0)
    envs.close()
    assert [process.exitcode for process in envs.processes] == [0, 0]
