"""Recorded data is in memory only once; arrays and tensors are counted exactly."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import Callback, train
from rl_training.data import TransitionDataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.runtime.session import Session

ROWS, OBS, ACT = 40_000, 17, 6
ARRAY_BYTES = ROWS * 4 * (2 * OBS + ACT + 3)


def make_arrays(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs = rng.normal(3.0, 2.0, (rows, OBS)).astype(np.float32)
    return {
        "observations": obs,
        "actions": rng.uniform(-1, 1, (rows, ACT)).astype(np.float32),
        "rewards": obs[:, 0].copy(),
        "next_observations": obs,
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(1, rows + 1) % 1000 == 0,
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arrays(make_arrays(ROWS), tmp_path_factory.mktemp("noise") / "noise.npz")


@pytest.fixture
def _traced() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # existing objects are not counted
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.unfreeze()


def numpy_bytes() -> int:
    """Return the memory of all arrays."""
    only = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    traces = tracemalloc.take_snapshot().filter_traces([only]).traces
    return sum(trace.size for trace in traces)


def torch_bytes() -> int:
    """Return the memory of all tensors; views and tensors that share an array do not count."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu":
            storage = thing.untyped_storage()
            if storage.resizable():  # memory of an array cannot be resized
                found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


class Weigh(Callback):
    """Measures memory during updates."""

    def __init__(self) -> None:
        self.arrays: list[int] = []
        self.tensors: list[int] = []

    def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
        self.arrays.append(numpy_bytes())
        self.tensors.append(torch_bytes())


@pytest.mark.usefixtures("_traced")
@pytest.mark.parametrize(
    ("algo", "keys"),
    [
        ("bc", {}),
        ("iql", {"normalize_states": True, "return_scaling": True, "reward_shift": 1.0}),
        ("iql", {"sampling": "epochs"}),
    ],
)
def test_training_keeps_one_copy(
    algo: str, keys: dict[str, Any], small_config: Callable[..., dict[str, Any]], file: Path
) -> None:
    """The rows once, the learner, and three numbers per row when sampling by epochs."""
    given = {"dataset_path": str(file), "sampling": "replacement", "validation_fraction": 0}
    bounds = {"action_low": -1, "action_high": 1}
    config = small_config(algo=algo, algo_kwargs=given | bounds | keys, total_timesteps=80)
    weigh, before = Weigh(), torch_bytes()
    train(config | {"env_id": None}, callbacks=[weigh])
    assert len(weigh.arrays) == 4
    orders = 3 * 8 * ROWS if keys.get("sampling") == "epochs" else 0
    for arrays, tensors in zip(weigh.arrays, weigh.tensors, strict=True):
        assert ARRAY_BYTES <= arrays < 1.05 * ARRAY_BYTES
        assert tensors - before < orders + 0.1 * ARRAY_BYTES
    assert weigh.arrays[-1] - weigh.arrays[0] < 10_000
    assert weigh.tensors[-1] - weigh.tensors[0] < 10_000


@pytest.mark.usefixtures("_traced")
def test_moments_are_computed_in_chunks() -> None:
    """They equal NumPy's, but are computed without an array of all deviations."""
    arrays = make_arrays(400_000)
    dataset = TransitionDataset.from_dict(arrays)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    found = dataset.statistics()
    assert tracemalloc.get_traced_memory()[1] - before < 0.4 * dataset.rows.nbytes  # all: 0.8
    obs = arrays["observations"].astype(np.float64)
    np.testing.assert_allclose(found.obs_mean, obs.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.obs_std, obs.std(axis=0), rtol=1e-12)
