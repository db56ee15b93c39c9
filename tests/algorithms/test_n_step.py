"""`n_step`: bootstrapped targets use the discount of each row; other learners reject it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rl_training import (
    ConfigError,
    evaluate_checkpoint,
    finetune,
    register_algorithm,
    resume,
    train,
)
from rl_training.algorithms.base import draw_noise, td_target
from rl_training.algorithms.config import ValueConfig
from rl_training.algorithms.fqe import FQEConfig
from rl_training.algorithms.registry import REGISTRY
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.data import TransitionDataset
from rl_training.experiment.dataset_source import supply_fields
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.off_policy_evaluation import fitted_q_evaluation
from rl_training.types import Batch, EnvSpec
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.conftest import CASES, TINY, case_id

Config = Callable[..., dict[str, Any]]
LEARNERS = [case for case in CASES if not case[0].goals and case[0].name != "bc"]
SPECS = {
    "continuous": EnvSpec(4, 2, (-1.0, -3.0), (1.0, 3.0)),
    "discrete": EnvSpec(4, 3, discrete=True),
}
ROWS = 8


def critic_loss(entry: Any, kind: str, gamma: float, discounts: torch.Tensor | None) -> float:
    """Return the value loss of a learner on one batch."""
    settings = entry.config_class()(
        **{"hidden_sizes": (16, 16), "batch_size": ROWS, "gamma": gamma} | TINY.get(entry.name, {})
    )
    learner = entry.learner_class().build(SPECS[kind], settings).double()
    g = torch.Generator().manual_seed(0)
    spec = learner.spec
    draw: Any = {"generator": g, "dtype": torch.float64}
    actions = torch.rand(ROWS, spec.action_width, **draw)
    shapes = {"next_actions": actions.shape, "next_action_mask": (ROWS,)}
    extra = {name: torch.rand(*shapes[name], **draw) for name in learner.fields()}
    batch = Batch(
        torch.randn(ROWS, spec.obs_dim, **draw),
        (actions * spec.action_dim).floor() if spec.discrete else actions * 2 - 1,
        torch.randn(ROWS, **draw),
        torch.randn(ROWS, spec.obs_dim, **draw),
        (torch.arange(ROWS) % 4 == 0).double(),
        extra if discounts is None else {**extra, "discounts": discounts},
    )
    noise = draw_noise(learner.noise(ROWS), torch.Generator().manual_seed(1), torch.float64)
    losses = learner.held_out_losses(batch, noise)
    return float(losses["loss/q" if entry.name == "dqn" else "loss/critic"])


@pytest.mark.parametrize(("entry", "kind"), LEARNERS, ids=case_id)
def test_every_row_is_bootstrapped_with_its_own_discount(entry: Any, kind: str) -> None:
    """Losses are means over rows, so halves of a batch can be swapped."""
    assert entry.learner_class().supports_n_step
    half = torch.arange(ROWS) < ROWS // 2
    one, other = (torch.full((ROWS,), discount, dtype=torch.float64) for discount in (0.9, 0.3))
    alike = critic_loss(entry, kind, 0.99, one), critic_loss(entry, kind, 0.99, other)
    plain = critic_loss(entry, kind, 0.9, None), critic_loss(entry, kind, 0.3, None)
    assert alike == pytest.approx(plain, rel=1e-12)
    assert abs(alike[0] - alike[1]) > 1e-6
    mixed = (
        critic_loss(entry, kind, 0.99, torch.where(half, one, other)),
        critic_loss(entry, kind, 0.99, torch.where(half, other, one)),
    )
    assert sum(mixed) == pytest.approx(sum(alike), rel=1e-12)
    assert mixed[0] not in alike


def test_target_of_rows_with_discounts() -> None:
    rng = np.random.default_rng(0)
    rewards, value, discounts = rng.normal(size=(3, 5))
    ended = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    reward, flag, after = (torch.from_numpy(x) for x in (rewards, ended, value))
    found = td_target(reward, flag, after, gamma=torch.from_numpy(discounts))
    np.testing.assert_allclose(found.numpy(), rewards + discounts * (1 - ended) * value, rtol=1e-14)
    wide = torch.from_numpy(rng.normal(size=(5, 3)))
    columns = reward.unsqueeze(-1), flag.unsqueeze(-1)
    found = td_target(*columns, wide, gamma=torch.from_numpy(discounts))
    expected = rewards[:, None] + (discounts * (1 - ended))[:, None] * wide.numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


RUNS: dict[str, dict[str, Any]] = {
    "sac": {"num_envs": 3, "algo_kwargs": {"buffer_capacity": 50}},
    "dqn": {},
    "iql": {"algo_kwargs": {"validation_fraction": 0.2}},
    "td3": {"num_envs": 2, "algo_kwargs": {"replay": "prioritized", "buffer_capacity": 45}},
    "rlpd": {"algo_kwargs": {"offline_pretrain_updates": 20, "normalize_states": True}},
}


@pytest.mark.parametrize("algo", RUNS)
def test_run_with_n_step_3_resumes_exactly(algo: str, small_config: Config) -> None:
    """Online with several environments and a full ring buffer, offline, and mixed.

    Prioritized replay is included; its rows are the first of each n-step sum.
    """
    changes = dict(RUNS[algo])
    kwargs = {"n_step": 3, **changes.pop("algo_kwargs", {})}
    config = small_config(algo=algo, algo_kwargs=kwargs, **changes)
    whole = train(config | {"output_dir": config["output_dir"] + "/whole"})
    single = {**config["algo_kwargs"], "n_step": 1}
    other = train(config | {"algo_kwargs": single, "output_dir": config["output_dir"] + "/single"})
    assert whole.metrics != other.metrics
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(90)])
    (broken,) = Path(config["output_dir"]).glob(f"{algo}*")
    assert_same_run(whole, resume(broken))


def test_fine_tuning_keeps_n_step_and_fqe_ignores_it(small_config: Config) -> None:
    source = train(small_config(algo="td3_bc", algo_kwargs={"n_step": 3}))
    further = ("total_timesteps=60", "learning_starts=20")
    kept = finetune(source.run_dir, None, further)
    assert SavedRun.load(kept.run_dir).config.algo_kwargs["n_step"] == 3
    other = finetune(source.run_dir, None, (*further, "n_step=1"))
    assert SavedRun.load(other.run_dir).config.algo_kwargs["n_step"] == 1
    estimated = evaluate_checkpoint(source.run_dir, fqe=True, fqe_updates=5)
    assert np.isfinite(estimated["fqe_value"])


class SingleStep(SACAlgorithm):
    """A custom learner whose target uses only gamma."""

    name: ClassVar[str] = "single_step"
    supports_n_step: ClassVar[bool] = False


@pytest.fixture
def _registered() -> Iterator[None]:
    register_algorithm(SingleStep)
    yield
    del REGISTRY[SingleStep.name]


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(
    ("algo", "message"),
    [
        ("her", "n_step = 3 cannot be used with HER, which relabels single"),
        ("bc", "'n_step' is not an option of BC"),
        ("single_step", "n_step = 3: single_step supports one-step targets only"),
    ],
)
def test_learner_without_n_step_support_raises(
    small_config: Config, algo: str, message: str
) -> None:
    config = small_config(algo=algo, algo_kwargs={"n_step": 3})
    with pytest.raises(ConfigError, match=message):
        train(config)
    assert not list(Path(config["output_dir"]).glob("*"))


def test_fqe_uses_single_steps() -> None:
    learner = SACAlgorithm.build(EnvSpec(2, 1, (-1.0,), (1.0,)))
    data = TransitionDataset.from_dict(
        {"observations": np.zeros((9, 2)), "actions": np.zeros((9, 1)), "rewards": np.zeros(9)}
    )
    with pytest.raises(
        ConfigError, match="n_step = 2: fitted Q evaluation supports one-step targets"
    ):
        fitted_q_evaluation(learner, data, config=FQEConfig(n_step=2))


def test_discounted_field_needs_a_discount() -> None:
    class Returns(REGISTRY["bc"].learner_class()):  # type: ignore[misc]
        def fields(self) -> tuple[str, ...]:
            return ("returns_to_go",)

    learner = Returns.build(EnvSpec(2, 1, (-1.0,), (1.0,)))
    assert not isinstance(learner.config, ValueConfig)
    with pytest.raises(ConfigError, match="'returns_to_go' requires gamma: derive BCConfig from"):
        supply_fields(learner)
