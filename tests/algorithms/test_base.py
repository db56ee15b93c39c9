"""Delayed stages of an update, and learners without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Due, Stage, draw_noise
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.dqn import DQNAlgorithm
from rl_training.algorithms.redq import REDQAlgorithm
from rl_training.algorithms.rlpd import RLPDAlgorithm
from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.algorithms.td3 import TD3Algorithm
from rl_training.algorithms.td3_bc import TD3BCAlgorithm
from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.errors import ConfigError
from rl_training.models import MLP
from rl_training.runtime.engine import Engine
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseField, NoiseSpec
from tests.golden import ACT, OBS, ROWS, SPEC, make_batch, make_learner, make_noise

DELAYED = [TD3Algorithm, TD3BCAlgorithm, REDQAlgorithm, RLPDAlgorithm]


class Regression(Algorithm):
    """Least squares: an update that takes only a batch and noise."""

    name = "regression"
    config_class = AlgorithmConfig

    def __init__(self, spec: EnvSpec, config: Any, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        self.net = MLP(spec.obs_dim, (8,), spec.action_dim, generator=generator)
        self.add_optimizer("actor", self.net.flat)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def choose_actions(
        self, obs: Any, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Any:
        return self.net(obs).tanh()

    def update(self, batch: Batch, noise: Noise) -> Metrics:  # type: ignore[override]
        loss = (self.net(batch.obs).tanh() - batch.actions).square().mean()
        self.minimize(loss, actor=self.net.flat)
        return {"loss/actor": loss.detach()}


@pytest.mark.parametrize("kind", DELAYED)
def test_update_without_due_raises_for_a_delayed_actor(kind: Any) -> None:
    learner = make_learner(kind)
    every = learner.intervals["actor"]
    with pytest.raises(ConfigError, match=f"'actor' only every {every} updates,.*learner.due"):
        learner.update(make_batch(), make_noise(learner))
    before = learner.model.actor.flat.detach().clone()
    for updates in range(every):
        assert torch.equal(learner.model.actor.flat, before)
        learner.update(make_batch(), make_noise(learner), learner.due(updates))
    assert not torch.equal(learner.model.actor.flat, before)


def test_update_without_due_raises_for_a_delayed_target() -> None:
    learner = DQNAlgorithm.build(EnvSpec(OBS, 4, discrete=True))
    batch = make_batch().map(torch.Tensor.float)._replace(actions=torch.zeros(ROWS, 1))
    with pytest.raises(ConfigError, match="'target' only every 50 updates"):
        learner.update(batch, {})


def test_due_is_optional_if_every_stage_always_runs() -> None:
    for learner in (make_learner(SACAlgorithm), make_learner(TD3Algorithm, policy_delay=1)):
        assert learner.all_due() == [{"actor"}]
        assert "loss/actor" in learner.update(make_batch(), make_noise(learner))


@pytest.mark.parametrize("due", ["actor", {"policy"}, frozenset({"actor", "targets"})])
def test_unknown_stage_raises(due: Any) -> None:
    learner = make_learner(TD3Algorithm)
    with pytest.raises(ConfigError, match=r"the delayed stages of td3 are \['actor'\]"):
        learner.update(make_batch(), make_noise(learner), due)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 6)))
def test_all_due_lists_every_value_of_due(intervals: dict[str, int]) -> None:
    learner = make_learner(SACAlgorithm)
    learner.intervals = intervals
    met: list[Due] = [learner.due(updates) for updates in range(60)]
    assert set(met) == set(learner.all_due())
    for stage, every in intervals.items():
        assert [stage in due for due in met] == [(n + 1) % every == 0 for n in range(60)]


def test_learner_without_stages_trains() -> None:
    data = {"observations": torch.randn(64, OBS).numpy(), "actions": torch.rand(64, ACT).numpy()}
    data |= {"rewards": torch.zeros(64).numpy(), "next_observations": data["observations"]}
    data |= {"terminations": torch.zeros(64, dtype=torch.bool).numpy()}
    learner = Regression.build(SPEC, AlgorithmConfig(batch_size=16))
    engine = Engine(learner, TransitionDataset.from_dict(data, spec=SPEC), seed=0)
    engine.run(30)
    first = engine.pop_metrics()["loss/actor"]
    engine.run(300)
    assert engine.pop_metrics()["loss/actor"] < first
    batch = make_batch().map(torch.Tensor.float)
    held_out = learner.held_out_losses(batch, {})
    assert torch.equal(held_out["loss/actor"], learner.held_out_losses(batch, {})["loss/actor"])


# --- Errors in custom algorithms -------------------------------------------------


def test_fields_must_return_a_tuple() -> None:
    class Forgetful(SACAlgorithm):
        def fields(self) -> Any:
            return "next_actions"

    with pytest.raises(ConfigError, match=r"should return a tuple of names: \('next_actions',\)"):
        Forgetful.declared_fields(Forgetful.config_class())


def test_unknown_noise_distribution_raises() -> None:
    spec: Any = {"extra": NoiseField("norml", (3,))}  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="noise 'extra' is 'norml', but should be 'normal' or"):
        draw_noise(spec, torch.Generator())


def test_unknown_optimizer_and_non_scalar_loss_raise() -> None:
    learner = make_learner(SACAlgorithm)
    flat = learner.model.critic.flat
    with pytest.raises(ConfigError, match="no optimizer 'critics'; did you mean 'critic'"):
        learner.minimize(flat.sum(), critics=flat)
    with pytest.raises(
        ConfigError, match=r"The loss of critic has the shape \[2\], but should be a scalar"
    ):
        learner.minimize(flat[:2], critic=flat)


def test_config_must_be_an_object() -> None:
    with pytest.raises(ConfigError, match=r"config = \{'tau': 0.1\}: .* such as SACConfig\(…\)"):
        SACAlgorithm.build(SPEC, {"tau": 0.1})


class Careless(SACAlgorithm):
    """Returns what `wrong` makes of the critics' stage."""

    wrong: Any

    def critic_stage(self, batch: Batch, noise: Noise) -> Any:
        return type(self).wrong(super().critic_stage(batch, noise))


def reporting(name: str, value: Any) -> Callable[[Stage], Stage]:
    """Return a function that adds a metric to a stage."""

    def add(stage: Stage) -> Stage:
        return stage._replace(
            terms=stage.terms._replace(metrics={**stage.terms.metrics, name: value})
        )

    return add


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda _: None, "Careless.stages yields None instead of a Stage"),
        (lambda stage: stage.terms, r"yields .* instead of a Stage. Check that methods such as"),
        (
            reporting("q/all", torch.zeros(32)),
            r"'q/all' has the shape \[32\], but should be a scalar: use mean\(\)",
        ),
        (
            reporting("sample/error", torch.zeros(3)),
            r"'sample/error' has the shape \[3\], but should have the shape \[32\]",
        ),
        (reporting("q/all", 1.0), "'q/all' is of type float, but should be a tensor"),
    ],
)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_wrong_stages_and_metrics_raise(mode: Any, wrong: Any, message: str) -> None:
    """Compiled updates raise the same error instead of a warning that the compiler failed."""
    learner = Careless.build(SPEC, SACConfig(hidden_sizes=(8,), batch_size=32))
    Careless.wrong = staticmethod(wrong)
    rows = make_batch().map(torch.Tensor.float)
    source = ReplayBuffer(64, OBS, ACT, num_envs=len(rows.rewards))
    ended = rows.terminations.numpy() > 0
    obs, actions, rewards, next_obs = (tensor.numpy() for tensor in rows[:4])
    source.add(obs, actions, rewards, next_obs, ended, ended & False)
    with pytest.raises(ConfigError, match=message):
        Engine(learner, source, seed=0, mode=mode).run(1)
    with pytest.raises(ConfigError, match=message):
        learner.held_out_losses(rows, draw_noise(learner.noise(32), torch.Generator()))


def test_stages_and_metrics_must_be_returned() -> None:
    class Silent(SACAlgorithm):
        def stages(self, batch: Batch, noise: Noise, due: Any) -> Any:
            self.critic_stage(batch, noise)

    class Quiet(Regression):
        def update(self, batch: Batch, noise: Noise, due: Any = None) -> Any:
            super().update(batch, noise)

    rows = make_batch().map(torch.Tensor.float)
    learner = Silent.build(SPEC, SACConfig(hidden_sizes=(8,)))
    with pytest.raises(ConfigError, match=r"Silent\.stages returns None, but should yield each"):
        learner.run_update(rows, draw_noise(learner.noise(32), torch.Generator()), learner.due(0))
    with pytest.raises(ConfigError, match="returns None, but should return its metrics"):
        Quiet.build(SPEC, AlgorithmConfig()).run_update(rows, {}, frozenset())
