"""Schedules, early stopping, seeds, plain data and threads."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training import (
    Callback,
    ConfigError,
    EarlyStoppingCallback,
    EarlyStoppingConfig,
    TrainerState,
    evaluate_checkpoint,
    resume,
    train,
)
from rl_training.algorithms.sac import SACConfig
from rl_training.api import progress
from rl_training.api.progress import ProgressCallback
from rl_training.boundary import json_codec
from rl_training.experiment.machine import MAX_THREADS, choose_threads
from rl_training.runtime.control_config import ControlsConfig, build_control_callbacks
from rl_training.runtime.evaluation import EvaluationResult
from rl_training.runtime.schedules import Schedule
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.runtime.training_loop import updates_due


def stop_step(config: EarlyStoppingConfig, values: list[float]) -> int | None:
    """Return the evaluation (1-based, 100 steps apart) at which the callback stops, if any."""
    callback, state = EarlyStoppingCallback(config), TrainerState()
    for index, value in enumerate(values, start=1):
        state.step = 100 * index
        session: Any = SimpleNamespace(state=state, own_steps=state.step)
        callback.on_evaluation(session, {config.metric: value})
        if state.should_stop:
            return index
    return None


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        (EarlyStoppingConfig(patience=2), [1, 2, 3, 4], None),
        (EarlyStoppingConfig(patience=2), [1, 2, 2, 2], 4),
        (EarlyStoppingConfig(patience=2), [5, 4, 6, 5, 5], 5),
        (EarlyStoppingConfig(patience=2, min_delta=1.5), [1, 2, 3, 4], None),
        (EarlyStoppingConfig(patience=1, min_delta=1.5), [1, 2, 3, 4], 2),
        (EarlyStoppingConfig(patience=1, min_steps=400), [1, 1, 1, 1, 1], 4),
        (EarlyStoppingConfig(patience=1, mode="min"), [5, 4, 4], 3),
        (EarlyStoppingConfig(target_value=3), [1, 3, 9], 2),
        (EarlyStoppingConfig(target_value=3, mode="min"), [5, 4, 3], 3),
        (EarlyStoppingConfig(target_value=3, min_steps=300), [9, 9, 9], 3),
    ],
)
def test_early_stopping(
    config: EarlyStoppingConfig, values: list[float], expected: int | None
) -> None:
    assert stop_step(config, values) == expected


def test_early_stopping_reports_its_waiting_time() -> None:
    """Because of `min_steps`, it may wait longer than its patience."""
    callback = EarlyStoppingCallback(EarlyStoppingConfig(patience=2, min_steps=500))
    state = TrainerState()
    for step in range(100, 600, 100):
        session: Any = SimpleNamespace(state=state, own_steps=step)
        callback.on_evaluation(session, {"eval_return_mean": 1.0})
    reason = "early_stopping: eval_return_mean did not improve for 4 evaluations"
    assert state.stop_reason == reason


@pytest.mark.parametrize(
    ("stopping", "advice", "enough"),
    [
        ({"target_value": -1e6, "patience": 9}, "target_value", "early_stopping.target_value=1e6"),
        ({"patience": 1, "min_delta": 1e6}, "patience", "early_stopping.patience=9"),
    ],
)
def test_advice_after_an_early_stop_works(
    stopping: dict[str, Any], advice: str, enough: str, small_config: Callable[..., dict[str, Any]]
) -> None:
    config = small_config(eval_episodes=1, env_kwargs={"max_episode_steps": 20})
    config["algo_kwargs"] |= {"eval_interval": 30, "early_stopping": stopping}
    stopped = train(config)
    assert stopped.metrics["step"] < 120
    with pytest.raises(ConfigError, match=rf"\(early_stopping\.{advice}=N\)"):
        resume(stopped.run_dir)
    assert resume(stopped.run_dir, [enough]).stop_reason == "completed"


def test_early_stopping_resets_with_another_metric() -> None:
    """The best value of one metric does not apply to another."""
    before = EarlyStoppingCallback(EarlyStoppingConfig(metric="eval_length_mean", patience=3))
    before.best, before.evaluations_without_improvement = 200.0, 2
    same = EarlyStoppingCallback(EarlyStoppingConfig(metric="eval_length_mean", patience=3))
    other = EarlyStoppingCallback(EarlyStoppingConfig(patience=3))
    same.load_state_dict(before.state_dict())
    other.load_state_dict(before.state_dict())
    assert (same.best, same.evaluations_without_improvement) == (200.0, 2)
    assert (other.best, other.evaluations_without_improvement) == (None, 0)


def test_early_stopping_continues_from_its_state() -> None:
    config = EarlyStoppingConfig(patience=3)
    first, second = EarlyStoppingCallback(config), EarlyStoppingCallback(config)
    session: Any = SimpleNamespace(state=TrainerState(), own_steps=0)
    for value in (5.0, 4.0, 4.0):
        first.on_evaluation(session, {"eval_return_mean": value})
    second.load_state_dict(json_codec.loads(json_codec.dumps(first.state_dict())))
    second.on_evaluation(session, {"eval_return_mean": 4.0})
    assert session.state.should_stop


def test_control_callbacks_follow_the_config() -> None:
    assert build_control_callbacks(ControlsConfig()) == []
    stopping = ControlsConfig(early_stopping=EarlyStoppingConfig(patience=1))
    (callback,) = build_control_callbacks(stopping)
    assert isinstance(callback, EarlyStoppingCallback)


def test_first_stop_reason_is_kept_but_completion_replaces_a_signal() -> None:
    state = TrainerState()
    state.request_stop("first")
    state.request_stop("second")
    assert state.stop_reason == "first"
    state.complete()
    assert state.stop_reason == "completed"
    state.clear_stop()
    assert state == TrainerState()


@pytest.mark.parametrize("reason", ["early_stopping: reached", "enough"])
def test_any_other_reason_replaces_a_signal(reason: str) -> None:
    state = TrainerState()
    for text in ("signal: SIGTERM", "signal: SIGINT", reason, "later", "signal: SIGTERM"):
        state.request_stop(text)
    assert (state.should_stop, state.stop_reason) == (True, reason)


def test_schedules() -> None:
    linear = Schedule(kind="linear", horizon=100, final=0.2)
    assert [linear.factor(s) for s in (0, 50, 100, 500)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    cosine = Schedule(kind="cosine", horizon=100)
    assert [cosine.factor(s) for s in (0, 50, 100)] == pytest.approx([1.0, 0.5, 0.0])
    warm = Schedule(warmup=10)
    assert [warm.factor(s) for s in (0, 4, 9, 10, 99)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 1.0])
    both = Schedule(kind="linear", warmup=10, horizon=110)
    assert [both.factor(s) for s in (0, 10, 60, 110)] == pytest.approx([0.1, 1.0, 0.5, 0.0])
    assert Schedule().is_constant
    assert not warm.is_constant
    short = Schedule(kind="linear", warmup=10, horizon=5)
    for schedule, end in ((linear, None), (cosine, 100), (warm, None), (both, 110), (short, 11)):
        assert schedule.zero_from == end
        if end is not None:
            assert schedule.factor(end - 1) > 0
            assert schedule.factor(end) == 0


@pytest.mark.parametrize(
    ("algo", "kwargs", "sentence"),
    [
        (
            "sac",
            {"learning_rate_schedule": "linear"},
            "the learning rate is 0 after step 40, where",
        ),
        ("iql", {"learning_rate_schedule": "cosine"}, "the actor's learning rate is 0 after step"),
        ("sac", {"learning_rate_schedule": "linear", "learning_rate_final": 0.1}, None),
        ("sac", {"learning_rate_warmup": 10}, None),
    ],
)
def test_resume_beyond_the_schedule_warns(
    small_config: Callable[..., dict[str, Any]],
    algo: str,
    kwargs: dict[str, Any],
    sentence: str | None,
) -> None:
    run_dir = train(small_config(algo=algo, total_timesteps=40, algo_kwargs=kwargs)).run_dir
    told: list[str] = []
    resume(run_dir, ["total_timesteps=60"], on_warning=told.append)
    if sentence is None:
        assert told == []
        return
    (warning,) = told
    assert sentence in warning
    assert "but the run continues to step 60" in warning
    assert "extend the schedule with schedule_horizon=60 " in warning
    resume(run_dir, ["total_timesteps=80", "schedule_horizon=80"], on_warning=told.append)
    assert len(told) == 1


@given(
    starts=st.integers(0, 50),
    frequency=st.integers(1, 9),
    per_step=st.integers(1, 5),
    envs=st.integers(1, 6),
    rounds=st.integers(1, 60),
)
def test_updates_per_collected_transition(
    starts: int, frequency: int, per_step: int, envs: int, rounds: int
) -> None:
    config = SACConfig(
        learning_starts=starts, train_frequency=frequency, gradient_updates_per_step=per_step
    )
    total = sum(updates_due((i + 1) * envs, i * envs, config) for i in range(rounds))
    assert total == max(0, rounds * envs - starts) // frequency * per_step


def test_streams_are_independent() -> None:
    seeds = {derive_seed(seed, stream) for seed in range(100) for stream in Stream}
    assert len(seeds) == 100 * len(Stream)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, min_size=2, max_size=3)
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_data_round_trips(value: Any) -> None:
    assert json_codec.loads(json_codec.dumps(value)) == value


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?"])
def test_arrays_round_trip_bit_for_bit(dtype: str) -> None:
    array = (np.random.default_rng(0).normal(size=(3, 2)) * 3).astype(dtype)
    back = json_codec.loads(json_codec.dumps({"a": array, "s": array[0, 0]}))
    assert back["a"].dtype == array.dtype
    assert back["a"].tobytes() == array.tobytes()
    assert type(back["s"]) is type(array[0, 0])


def test_unsupported_types_are_refused() -> None:
    for value in (object(), np.array([object()]), {"a": {1, 2}}):
        with pytest.raises(TypeError, match="not plain data"):
            json_codec.dumps(value)
    with pytest.raises(ValueError, match="not plain data"):
        json_codec.loads(b'{"@array": ["|O", [1], ""]}')


def test_interval_of_few_episodes_is_students() -> None:
    """Two episodes do not get the interval from the lower to the higher return."""

    def bounds(*returns: float) -> Any:
        return EvaluationResult(returns, (1,) * len(returns)).summary()["eval_return_ci95"]

    assert bounds(5.0) is None
    assert bounds(1.0, 2.0) == pytest.approx([1.5 - 6.3531, 1.5 + 6.3531], abs=1e-3)
    assert bounds(2.0, 2.0) == [2.0, 2.0]
    low, high = bounds(*np.random.default_rng(0).normal(3.0, 1.0, 30))
    assert 2.4 < low < 3.0 < high < 3.6


# --- Threads ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "requested", "expected"),
    [("3", None, 3), ("64", None, 64), ("2,4", None, 2), (" 5 ", None, 5), ("3", 2, 2)],
)
def test_threads_from_the_config_or_the_environment(
    variable: str, requested: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert choose_threads(requested) == expected


@pytest.mark.parametrize("variable", [None, "", "0", "-2", "many"])
def test_threads_default_to_the_cores(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert choose_threads(None) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert choose_threads(None) == MAX_THREADS


def test_caller_keeps_its_thread_count(small_config: Callable[..., dict[str, Any]]) -> None:
    class Looks(Callback):
        def on_step(self, session: Any) -> None:
            seen.append(torch.get_num_threads())

        def on_end(self, session: Any) -> None:
            raise RuntimeError("boom")

    seen: list[int] = []
    torch.set_num_threads(2)
    config = small_config(algo="bc", total_timesteps=20, algo_kwargs={"num_threads": 1})
    with pytest.raises(RuntimeError, match="boom"):
        train(config, callbacks=[Looks()])
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    evaluate_checkpoint(train(config).run_dir, fqe=True, fqe_updates=1)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("num_threads", "line"), [(None, "2 threads (OMP_NUM_THREADS),"), (1, "1 thread,")]
)
def test_display_shows_threads_from_the_environment(
    num_threads: int | None,
    line: str,
    small_config: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    said = io.StringIO()
    config = small_config(total_timesteps=20, algo_kwargs={"num_threads": num_threads})
    train(config, callbacks=[ProgressCallback(said)])
    assert line in said.getvalue()


@pytest.mark.parametrize(
    ("load", "num_threads", "times"), [(3.0, None, 1), (2.9, None, 0), (9.0, 2, 0), (9.0, 1, 0)]
)
def test_crowded_cores_are_reported_once(
    load: float,
    num_threads: int | None,
    times: int,
    small_config: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With two cores, a load of three means that one process has to wait."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    said = io.StringIO()
    config = small_config(total_timesteps=20, algo_kwargs={"num_threads": num_threads})
    train(config, callbacks=[ProgressCallback(said)])
    assert said.getvalue().count("With num_threads=1, runs that share") == times


def test_no_warning_without_load_averages(
    small_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.delattr(os, "getloadavg", raising=False)
    said = io.StringIO()
    config = small_config(total_timesteps=20, algo_kwargs={"num_threads": None})
    assert train(config, callbacks=[ProgressCallback(said)]).stop_reason == "completed"
    assert "20/20" in said.getvalue()
