"""Fields that an algorithm declares, in every kind of run and engine, and after a resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training import ConfigError, finetune, register_algorithm, resume, train
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.algorithms.td3_bc import TD3BCAlgorithm
from rl_training.data import EpochSampler, TransitionDataset
from rl_training.runtime.engine import Engine
from rl_training.types import Batch, EnvSpec, Noise
from tests.comparing import CrashAt, CrashError, assert_same_run

Config = Callable[..., dict[str, Any]]
NEXT = ("next_actions", "next_action_mask", "indices")
GO_ON = ("total_timesteps=60", "learning_starts=20", "checkpoint_interval=20")


class NextActionTD3BC(TD3BCAlgorithm):
    """Adds a dataset column for the next action to each target."""

    name: ClassVar[str] = "next_action_td3_bc"
    declared: ClassVar[tuple[str, ...]] = NEXT

    def fields(self) -> tuple[str, ...]:
        return self.declared

    @torch.no_grad()
    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        target = super().critic_target(batch, noise)
        taken = batch.next_action_mask * batch.next_actions.square().sum(-1)
        for name in self.declared[2:]:
            target = target + batch.column(name).to(target.dtype) * 1e-3
        return target - taken


class NextActionSAC(SACAlgorithm):
    """SAC that uses the recorded next action."""

    name: ClassVar[str] = "next_action_sac"
    declared: ClassVar[tuple[str, ...]] = NEXT

    def fields(self) -> tuple[str, ...]:
        return self.declared

    @torch.no_grad()
    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        taken = batch.next_action_mask * batch.next_actions.square().sum(-1)
        return super().critic_target(batch, noise) - taken


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for learner in (NextActionTD3BC, NextActionSAC):
        register_algorithm(learner)
    yield
    for learner in (NextActionTD3BC, NextActionSAC):
        del REGISTRY[learner.name]


@pytest.fixture
def with_level(recorded: Path, tmp_path: Path) -> Path:
    """The recorded data with an additional column."""
    arrays = dict(np.load(recorded))
    arrays["level"] = np.linspace(0.0, 1.0, len(arrays["rewards"]))
    np.savez(tmp_path / "level.npz", **arrays)
    return tmp_path / "level.npz"


@pytest.mark.parametrize("sampling", ["replacement", "epochs"])
def test_offline_run_with_fields_resumes_exactly(
    small_config: Config, with_level: Path, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For training and held-out rows, including returns to go and a dataset column."""
    monkeypatch.setattr(NextActionTD3BC, "declared", (*NEXT, "returns_to_go", "level"))
    kwargs = {"dataset_path": str(with_level), "sampling": sampling, "validation_fraction": 0.3}
    config = small_config(algo="next_action_td3_bc", algo_kwargs=kwargs, eval_episodes=1)
    whole = train(config | {"output_dir": config["output_dir"] + "/whole"})
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(60)])
    (broken,) = Path(config["output_dir"]).glob("next*")
    assert_same_run(whole, resume(broken))


def test_online_run_with_fields_resumes_exactly(small_config: Config) -> None:
    """With several environments, and after the ring buffer has wrapped around."""
    config = small_config(algo="next_action_sac", num_envs=3, algo_kwargs={"buffer_capacity": 50})
    whole = train(config | {"output_dir": config["output_dir"] + "/whole"})
    plain = train(config | {"algo": "sac", "output_dir": config["output_dir"] + "/plain"})
    assert whole.metrics["loss/critic"] != plain.metrics["loss/critic"]
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(90)])
    (broken,) = Path(config["output_dir"]).glob("next*")
    assert_same_run(whole, resume(broken))


def test_fine_tuning_gets_fields_from_both_sources(small_config: Config) -> None:
    """Also with normalization, and without the dataset."""
    config = small_config(algo="next_action_td3_bc", algo_kwargs={"normalize_states": True})
    source = train(config)
    assert "loss/critic" in finetune(source.run_dir, None, GO_ON).metrics
    dropped = finetune(source.run_dir, None, (*GO_ON, "offline_batch_ratio=0"))
    assert "loss/critic" in dropped.metrics


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("mode", ["compiled"])
def test_traced_updates_with_fields_equal_eager_ones(mode: Any, recorded: Path) -> None:
    arrays = dict(np.load(recorded))
    spec = EnvSpec(3, 1, (-2.0,), (2.0,))
    engines = []
    for kind in ("eager", mode):
        sampler = EpochSampler(TransitionDataset.from_dict(arrays, spec=spec))
        settings = NextActionTD3BC.config_class(hidden_sizes=(8,), batch_size=16)
        learner = NextActionTD3BC.build(spec, settings)
        sampler.supply(learner.fields())
        engine = Engine(learner, sampler, seed=0, mode=kind)
        for count in (1, 7, 40):
            engine.run(count)
        assert engine.mode == kind
        engines.append(engine)
    one, other = (engine.algorithm.state_dict() for engine in engines)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("algo", "declared", "message"),
    [
        ("next_action_sac", (*NEXT, "returns_to_go"), "'returns_to_go', which experience from an"),
        ("next_action_sac", (*NEXT, "level"), "'level', which experience from an environment"),
        ("next_action_td3_bc", (*NEXT, "lavel"), "has no column 'lavel', .* mean 'level'"),
        (
            "next_action_td3_bc",
            (*NEXT, "rewards"),
            "'rewards', but it is already part of every batch, as rewards",
        ),
    ],
)
def test_unknown_field_raises_one_sentence(
    small_config: Config,
    with_level: Path,
    monkeypatch: pytest.MonkeyPatch,
    algo: str,
    declared: tuple[str, ...],
    message: str,
) -> None:
    """Before a folder is created."""
    learner = {"next_action_sac": NextActionSAC, "next_action_td3_bc": NextActionTD3BC}[algo]
    monkeypatch.setattr(learner, "declared", declared)
    kwargs = {} if "sac" in algo else {"dataset_path": str(with_level)}
    config = small_config(algo=algo, algo_kwargs=kwargs)
    with pytest.raises(ConfigError, match=message) as caught:
        train(config)
    assert str(caught.value).count("\n") == 0
    assert not list(Path(config["output_dir"]).glob("*"))


def test_fields_cannot_depend_on_networks(small_config: Config) -> None:
    """Fields are needed to load the data, before a learner is built."""

    class Curious(SACAlgorithm):
        name = "curious"

        def fields(self) -> tuple[str, ...]:
            return ("indices",) * len(self.model.target)

    register_algorithm(Curious)
    try:
        with pytest.raises(ConfigError, match=r"Curious.fields may only read self\.config"):
            train(small_config(algo="curious"))
    finally:
        del REGISTRY["curious"]


def test_fine_tuning_refuses_returns_to_go(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NextActionTD3BC, "declared", (*NEXT, "returns_to_go"))
    source = train(small_config(algo="next_action_td3_bc"))
    with pytest.raises(ConfigError, match="'returns_to_go', which experience from an environment"):
        finetune(source.run_dir, None, GO_ON)
