"""Shared fixtures: one thread, no disk syncs, small runs."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import settings

from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.data.dataset_writers import write_arrays
from rl_training.runtime.recording import record_random

# A busy machine is not a failure. Continuous integration draws the same examples every time.
settings.register_profile("any machine", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("any machine")

# A shell lets the processes that it starts in the background ignore Ctrl-C, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers of asynchronous environments fork from a server that has imported what they need.
multiprocessing.set_forkserver_preload(["pytest", "rl_training.api.training"])

ENVS = {"continuous": "Pendulum-v1", "discrete": "CartPole-v1"}
"""A fast environment for each kind of action."""

CASES: list[tuple[AlgorithmEntry, str]] = [
    (entry, kind) for entry in REGISTRY.values() for kind in entry.kinds
]
"""Every algorithm with each kind of action space that it supports."""


def case_id(part: AlgorithmEntry | str) -> str:
    """Return the part of a test's name for one part of a case."""
    return part if isinstance(part, str) else part.name


GOALS = "rl_training/PointGoal-v0"
"""A fast environment with goals."""

COLLECTION_KEYS = ("learning_starts", "buffer_capacity")
"""Keys that offline algorithms do not have."""

SMALL_KWARGS: dict[str, Any] = {
    "hidden_sizes": [16, 16],
    "batch_size": 16,
    "learning_starts": 30,
    "buffer_capacity": 5_000,
    "eval_interval": 0,
    "tensorboard": False,
    "num_threads": 1,
}

SIZES: dict[str, Any] = {
    "num_critics": 3,
    "num_quantiles": 5,
    "num_sampled_actions": 3,
    "gradient_updates_per_step": 3,
    "critic_hidden_sizes": (16, 16),
}
TINY: dict[str, dict[str, Any]] = {
    name: {
        key: size
        for key, size in SIZES.items()
        if key in entry.config_class().model_fields
        and entry.config_class().model_fields[key].default > size
    }
    for name, entry in REGISTRY.items()
}
"""Additional settings that keep the runs of some algorithms small."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the global generators by the name of the test, so that a failure can be repeated."""
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _skip_disk_syncs() -> Iterator[None]:
    """Skip disk syncs; `tests.faults.injection` tests them."""
    with mock.patch.object(os, "fsync", os.fstat):  # still fails if the descriptor is closed
        yield


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run traced updates without code generation, which saves seconds."""
    name = "rl_training.runtime.compilation.compile_program"
    monkeypatch.setattr(name, lambda program, inputs: program)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random transitions in an npz file: 450 rows in episodes of 200, 200 and 50."""
    file = tmp_path_factory.mktemp("recorded") / "pendulum.npz"
    write_arrays(record_random(ENVS["continuous"], {}, 450, 0), file)
    return file


@pytest.fixture(scope="session")
def recorded_discrete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random transitions with discrete actions in an npz file: 450 rows in short episodes."""
    file = tmp_path_factory.mktemp("recorded") / "cartpole.npz"
    write_arrays(record_random(ENVS["discrete"], {}, 450, 0), file)
    return file


@pytest.fixture
def small_config(
    tmp_path: Path, recorded: Path, recorded_discrete: Path
) -> Callable[..., dict[str, Any]]:
    """Return a mapping for a short run; keyword arguments replace or extend its keys.

    Offline algorithms get a dataset, sampled by epochs of 28.125 batches. ``kind`` is the kind of
    the actions, if the algorithm supports both.
    """

    def make(**changes: Any) -> dict[str, Any]:
        algo = changes.get("algo", "sac")
        kind = changes.pop("kind", None) or REGISTRY[algo].kinds[0]
        kwargs = dict(SMALL_KWARGS)
        mode = REGISTRY[algo].mode
        if mode == "offline":
            kwargs = {key: kwargs[key] for key in kwargs if key not in COLLECTION_KEYS}
        if mode != "online":
            data = recorded_discrete if kind == "discrete" else recorded
            kwargs |= {"dataset_kind": "npz", "dataset_path": str(data), "sampling": "epochs"}
        kwargs |= TINY.get(algo, {}) | changes.pop("algo_kwargs", {})
        return {
            "algo": algo,
            "env_id": GOALS if REGISTRY[algo].goals else ENVS[kind],
            "seed": 0,
            "total_timesteps": 120,
            "output_dir": str(tmp_path / "runs"),
            "device": "cpu",
            "eval_episodes": 0,
            "checkpoint_interval": 40,
            "log_interval": 20,
            "algo_kwargs": kwargs,
        } | changes

    return make
