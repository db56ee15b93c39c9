"""Resources: sizes, and a budget that is never exceeded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rl_training.config_model import validated
from rl_training.errors import ConfigError
from rl_training.study import resources
from rl_training.study.resources import (
    Budget,
    Resources,
    ResourcesConfig,
    machine_budget,
    parse_size,
    size_text,
)

GiB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 * GiB), ("500MB", 5 * 10**8), ("1.5 kB", 1500), ("7", 7), (7, 7), ("1T", 10**12)],
)
def test_sizes(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["lots", "", "0", "-1GiB", "1XB", True, 0, 1.5, None])
def test_other_sizes_are_one_sentence(text: Any) -> None:
    with pytest.raises(ValueError, match="such as 2GiB"):
        parse_size(text)


def test_size_text() -> None:
    assert [size_text(n) for n in (12, 1536, 200 << 20, 3 * GiB, 2 << 40)] == [
        *("12 bytes", "1.5 KiB", "200 MiB", "3 GiB", "2 TiB")
    ]


def test_unknown_resource_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cpus'"):
        validated(ResourcesConfig, {"cpu": 1})


def test_budget_is_never_exceeded() -> None:
    """Random jobs come and go; the sum of what is taken always fits."""
    rng = random.Random(0)
    budget = Budget(cores=4, memory=8 * GiB, gpus=["0", "1"])
    taken: dict[str, tuple[Resources, str | None]] = {}
    started = refused = 0
    for number in range(3000):
        if taken and rng.random() < 0.45:
            key = rng.choice(list(taken))
            budget.give_back(key)
            del taken[key]
            continue
        need = Resources(
            rng.choice([0.5, 1, 2]), rng.choice([0, 0.1, 0.3, 1]), rng.choice([0, GiB])
        )
        try:
            taken[str(number)] = need, budget.take(str(number), need)
            started += 1
        except LookupError:
            refused += 1
        assert sum(n.cpus for n, _ in taken.values()) <= 4
        assert sum(n.memory for n, _ in taken.values()) <= 8 * GiB
        for gpu in ("0", "1"):
            assert sum(n.gpus for n, where in taken.values() if where == gpu) <= 1 + 1e-9
        assert all((where is None) == (n.gpus == 0) for n, where in taken.values())
    assert started > 500
    assert refused > 200


def test_ten_tenths_of_a_gpu_fit() -> None:
    budget = Budget(cores=64, memory=0, gpus=["GPU-a"])
    need = Resources(cpus=1, gpus=0.1)
    assert budget.at_once(need) == 10
    assert [budget.take(str(n), need) for n in range(10)] == ["GPU-a"] * 10
    with pytest.raises(LookupError):
        budget.take("10", need)


def test_jobs_spread_over_gpus() -> None:
    budget = Budget(cores=8, memory=0, gpus=["0", "1"])
    assert {budget.take(str(n), Resources(gpus=0.5)) for n in range(2)} == {"0", "1"}


@pytest.mark.parametrize(
    ("need", "message"),
    [
        (Resources(cpus=3), "needs 3 cores, but this machine has 2"),
        (Resources(gpus=0.5), "needs 0.5 of a GPU, but this machine has no GPU"),
        (Resources(memory=3 * GiB), "needs 3 GiB of memory, but this machine has 2 GiB"),
    ],
)
def test_a_run_that_never_fits_is_one_sentence(need: Resources, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(cores=2, memory=2 * GiB).check(need, "A run of sac")


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    monkeypatch.setattr("rl_training.experiment.machine.usable_cores", lambda: 64)
    assert machine_budget().cores == 64
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    (tmp_path / "memory.max").write_text(f"{GiB}\n")
    assert (machine_budget().cores, machine_budget().memory) == (3, GiB)
    assert (machine_budget(5, 7).cores, machine_budget(5, 7).memory) == (5, 7)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine_budget().cores == 64


def test_visible_gpus_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-b")
    assert machine_budget().gpus == ["3", "GPU-b"]
    assert machine_budget(gpus=1).gpus == ["3"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert machine_budget().gpus == ["0", "1"]
    with pytest.raises(ConfigError, match="--gpus 3: this machine has 2 usable GPUs"):
        machine_budget(gpus=3)


def test_resources_of_a_foreign_index_are_usable() -> None:
    assert Resources.from_record({"cpus": -1, "gpus": 7, "memory": -3}) == Resources(1.0, 1.0, 0)
    need = Resources(2.0, 0.5, 7)
    assert Resources.from_record(need.to_record()) == need
