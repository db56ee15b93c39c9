"""Behavior that every registered algorithm shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
import rl_training.algorithms
from rl_training import (
    Callback,
    ConfigError,
    evaluate_checkpoint,
    predict_checkpoint,
    resume,
    train,
)
from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.algorithms.registry import AlgorithmEntry
from rl_training.boundary.packaged_configs import config_names
from rl_training.envs import EnvConfig, describe_env
from rl_training.experiment.build import build_session
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.task import check_config
from rl_training.runtime.checkpointing import MODEL, open_checkpoint
from rl_training.runtime.engine import BLOCK
from rl_training.runtime.evaluation import EvaluationResult, Evaluator
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.session import Session
from rl_training.types import Batch, EnvSpec
from tests.conftest import CASES, TINY, case_id

Config = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
SPECS = {
    "continuous": EnvSpec(4, 2, (-1.0, -3.0), (1.0, 3.0)),
    "discrete": EnvSpec(4, 3, discrete=True),
}

pytestmark = pytest.mark.parametrize(("entry", "kind"), CASES, ids=case_id)


SHORT_EPISODES: dict[str, Any] = {"env_kwargs": {"max_episode_steps": 20}}


def build(entry: AlgorithmEntry, kind: str, seed: int = 0) -> Algorithm:
    tiny = TINY.get(entry.name, {})
    config = entry.config_class()(**{"hidden_sizes": (16, 16), "batch_size": 8} | tiny)
    return entry.learner_class().build(SPECS[kind], config, seed=seed)


def make_batch(learner: Algorithm, rows: int = 8) -> Batch:
    g = torch.Generator().manual_seed(0)
    spec = learner.spec
    actions = torch.rand(rows, spec.action_width, generator=g)
    batch = Batch(
        torch.randn(rows, spec.obs_dim, generator=g),
        (actions * spec.action_dim).floor() if spec.discrete else actions * 2 - 1,
        torch.randn(rows, generator=g),
        torch.randn(rows, spec.obs_dim, generator=g),
        torch.zeros(rows),
    )
    following = {"next_actions": batch.actions.roll(-1, 0), "next_action_mask": torch.ones(rows)}
    return batch._replace(extra={name: following[name] for name in learner.fields()})


def test_actions_are_within_bounds_and_determined_by_the_noise(
    entry: AlgorithmEntry, kind: str
) -> None:
    learner = build(entry, kind)
    spec = learner.spec
    obs = 100 * torch.randn(64, spec.obs_dim)
    generator = torch.Generator().manual_seed(0)
    noise = draw_noise(learner.act_noise(64), generator)
    explored = learner.act(obs, deterministic=False, noise=noise)
    for actions in (explored, learner.act(obs, deterministic=True)):
        assert actions.shape == (64, spec.action_width)
        if spec.discrete:
            assert set(actions.flatten().tolist()) <= set(range(spec.action_dim))
        else:
            assert actions.abs().max() <= 1
        assert not actions.requires_grad
    torch.testing.assert_close(learner.act(obs, deterministic=False, noise=noise), explored)


def test_update_is_a_function_of_its_inputs(entry: AlgorithmEntry, kind: str) -> None:
    """Equal batches and noise give equal results; the global generator is not used."""
    states = []
    for _ in range(2):
        learner = build(entry, kind)
        noise = draw_noise(learner.noise(8), torch.Generator().manual_seed(1))
        before = torch.random.get_rng_state()
        for due in learner.all_due():
            metrics = learner.update(make_batch(learner), noise, due)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert all(value.dim() == 0 and not value.requires_grad for value in metrics.values())
        states.append({k: v.clone() for k, v in learner.state_dict().items()})
        torch.rand(3)
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


def test_update_changes_networks_and_not_the_batch(entry: AlgorithmEntry, kind: str) -> None:
    learner = build(entry, kind)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    batch = make_batch(learner)
    copies = [tensor.clone() for tensor in batch.tensors()]
    noise = draw_noise(learner.noise(8), torch.Generator().manual_seed(1))
    for due in learner.all_due():
        learner.update(batch, noise, due)
    assert all(torch.equal(a, b) for a, b in zip(batch.tensors(), copies, strict=True))
    still = {n for n, t in learner.state_dict().items() if torch.equal(t, before[n])}
    observed = {"reward_scale", "largest_return", "obs_shift", "obs_scale"}
    assert still <= {"fixed_alpha", "epsilon"} | observed | {
        n for n in before if n.endswith("learning_rate") or n.startswith("return_moments.")
    }


def test_state_is_restored_in_place(entry: AlgorithmEntry, kind: str) -> None:
    learner, other = build(entry, kind, seed=0), build(entry, kind, seed=1)
    addresses = {name: tensor.data_ptr() for name, tensor in other.state_dict().items()}
    other.load_state_dict(learner.state_dict())
    for name, tensor in other.state_dict().items():
        assert tensor.data_ptr() == addresses[name]
        assert torch.equal(tensor, learner.state_dict()[name])


def test_act_normalizes_raw_observations(entry: AlgorithmEntry, kind: str) -> None:
    learner = build(entry, kind)
    obs = torch.randn(16, learner.spec.obs_dim)
    plain = learner.act(obs, deterministic=True)
    mean, std = torch.arange(4.0), torch.tensor([0.5, 1.0, 2.0, 4.0])
    learner.set_normalization(mean, std)
    torch.testing.assert_close(learner.act(obs * std + mean, deterministic=True), plain)
    other = build(entry, kind, seed=1)
    other.load_state_dict(learner.state_dict())  # the statistics are saved with the weights
    torch.testing.assert_close(other.act(obs * std + mean, deterministic=True), plain)


def test_learning_rate_schedules_reach_every_optimizer(entry: AlgorithmEntry, kind: str) -> None:
    """All optimizers follow the schedule, or only those in `scheduled`."""
    learner = build(entry, kind)
    learner.scale_learning_rates(0.5)
    reached = learner.scheduled or tuple(learner.optimizers)
    for key, optimizer in learner.optimizers.items():
        base: Any = optimizer.base_learning_rate
        rate = base / 2 if key in reached else base
        assert float(optimizer.learning_rate) == pytest.approx(rate)  # type: ignore[arg-type]


def test_unsupported_action_space_raises(entry: AlgorithmEntry, kind: str) -> None:
    learner = entry.learner_class()
    if entry.goals:
        pytest.skip("HER trains another learner, and checks its environment itself")
    for other in SPECS.keys() - set(entry.kinds):
        with pytest.raises(
            ConfigError,
            match=f"{learner.name} needs a .* action space, but the action space is .* such as",
        ):
            learner.build(SPECS[other])


def test_surface_is_complete(entry: AlgorithmEntry, kind: str) -> None:
    short = entry.class_name.removesuffix("Algorithm")
    own_learner = () if entry.goals else (entry.class_name, f"{entry.name}_loss")
    for name in (short, f"train_{entry.name}", *own_learner):
        assert name in dir(rl_training), name
        assert getattr(rl_training, name) is not None
    if own_learner:
        assert getattr(rl_training.algorithms, short) is entry.learner_class()
    assert any(name.startswith(f"{entry.name}/") for name in config_names())
    page = (ROOT / "docs" / "algorithms" / f"{entry.name}.md").read_text()
    assert "## Settings\n" in page
    assert "## Scope, limits, why it is here\n" in page


def test_train_evaluate_predict_resume(
    entry: AlgorithmEntry, kind: str, small_config: Config
) -> None:
    config = small_config(algo=entry.name, kind=kind, eval_episodes=1, **SHORT_EPISODES)
    result = getattr(rl_training, f"train_{entry.name}")(config)
    assert result.stop_reason == "completed"
    assert "eval_return_mean" in result.metrics
    assert any(name.startswith("loss/") for name in result.metrics)
    score = evaluate_checkpoint(result.run_dir, episodes=2)
    assert score["eval_episodes"] == 2
    spec = describe_env(config["env_id"], EnvConfig())
    actions = predict_checkpoint(result.run_dir, np.zeros((5, spec.obs_dim)))
    assert actions.shape == ((5,) if spec.discrete else (5, spec.action_dim))
    assert actions.dtype.kind == ("i" if spec.discrete else "f")
    further = resume(result.run_dir, ["total_timesteps=160"])
    assert further.metrics["step"] == 160


def test_explores_at_random_and_then_with_the_policy(
    entry: AlgorithmEntry, kind: str, small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    act = Algorithm.act

    def counted(self: Algorithm, obs: Any, *, deterministic: bool, **options: Any) -> Any:
        calls.append(deterministic)
        return act(self, obs, deterministic=deterministic, **options)

    monkeypatch.setattr(Algorithm, "act", counted)
    train(
        small_config(algo=entry.name, kind=kind, total_timesteps=60)
    )  # the first 30 steps are random
    assert calls == ([] if entry.mode == "offline" else [False] * 30)


def test_intervals_are_honored(entry: AlgorithmEntry, kind: str, small_config: Config) -> None:
    config = small_config(
        algo=entry.name, kind=kind, eval_episodes=1, total_timesteps=100, **SHORT_EPISODES
    )
    config["algo_kwargs"] |= {"eval_interval": 30, "keep_checkpoints": 9}
    result = train(config)
    rows = list(read_metrics(result.run_dir))
    assert [r["step"] for r in rows if "eval_return_mean" in r] == [30, 60, 90, 100]
    assert [r["step"] for r in rows if "updates" in r] == [20, 40, 60, 80, 100]
    saved = {p.name for p in (result.run_dir / "checkpoints").glob("step_*")}
    assert {"step_000000040", "step_000000080", "step_000000100"} <= saved


class StopAfter(Callback):
    """Requests a stop and records the last step.

    `on_step` is called after each step online and after each block of updates offline.
    """

    def __init__(self, step: int) -> None:
        self.stop_at = step
        self.last = 0

    def on_step(self, session: Session) -> None:
        self.last = session.state.step
        if self.last >= self.stop_at:
            session.state.request_stop("enough")


def test_callback_stops_immediately_and_the_flags_are_saved(
    entry: AlgorithmEntry, kind: str, small_config: Config
) -> None:
    at = 60 if entry.mode == "offline" else 53
    stopper = StopAfter(53)
    result = train(small_config(algo=entry.name, kind=kind), callbacks=[stopper])
    assert (stopper.last, result.stop_reason) == (at, "enough")
    assert result.checkpoint_path.name == f"step_{at:09d}"
    seen: dict[str, Any] = {}

    class Look(Callback):
        def on_log(self, session: Session, metrics: Mapping[str, float]) -> None:
            seen.setdefault("first_log", session.state.step)

    checkpoint = open_checkpoint(result.checkpoint_path)
    saved = checkpoint.state()["trainer"]
    assert (saved["should_stop"], saved["stop_reason"]) == (True, "enough")
    run_config = SavedRun.of(checkpoint).config
    session = build_session(check_config(run_config), result.run_dir)
    session.restore(checkpoint)
    session.close()
    assert (session.state.should_stop, session.state.stop_reason) == (True, "enough")
    assert resume(result.run_dir, callbacks=[Look()]).stop_reason == "completed"
    assert seen["first_log"] == (80 if entry.mode == "offline" else 60)


def test_early_stopping(entry: AlgorithmEntry, kind: str, small_config: Config) -> None:
    config = small_config(
        algo=entry.name, kind=kind, eval_episodes=1, total_timesteps=200, **SHORT_EPISODES
    )
    config["algo_kwargs"] |= {
        "eval_interval": 20,
        "early_stopping": {"target_value": -1e9, "min_steps": 50},
    }
    result = train(config)
    assert result.stop_reason.startswith("early_stopping")
    assert result.metrics["step"] == 60  # the first evaluation after min_steps
    with pytest.raises(ConfigError, match=r"stopped early at step 60.*early_stopping=null"):
        resume(result.run_dir)
    further = resume(result.run_dir, ["early_stopping=null", "total_timesteps=100"])
    assert (further.stop_reason, further.metrics["step"]) == ("completed", 100)


def evaluations(monkeypatch: pytest.MonkeyPatch, *returns: float) -> None:
    """Make the run's evaluations return these values, repeating the last."""
    left = list(returns)

    def evaluate(self: Any, policy: Any, episodes: int, *_: Any) -> EvaluationResult:
        value = left.pop(0) if len(left) > 1 else left[0]
        return EvaluationResult(returns=(value,), lengths=(1,))

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)


def test_no_improvement_stops(
    entry: AlgorithmEntry, kind: str, small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best is at 40; 60 and 80 are no better, and 80 is the first after min_steps."""
    evaluations(monkeypatch, 1.0, 5.0, 5.0, 4.0)
    config = small_config(algo=entry.name, kind=kind, eval_episodes=1, total_timesteps=200)
    config["algo_kwargs"] |= {
        "eval_interval": 20,
        "early_stopping": {"patience": 1, "min_steps": 70},
    }
    result = train(config)
    assert result.stop_reason.startswith("early_stopping: eval_return_mean did not improve")
    assert (result.metrics["step"], result.metrics["best_step"]) == (80, 40)
    seen = open_checkpoint(result.checkpoint_path).state()["trainer"]
    assert (seen["should_stop"], seen["stop_reason"]) == (True, result.stop_reason)


def test_best_model_is_kept(
    entry: AlgorithmEntry, kind: str, small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept although newer checkpoints replace older ones and the run is resumed."""
    evaluations(monkeypatch, 1.0, 9.0, 3.0)
    config = small_config(algo=entry.name, kind=kind, eval_episodes=1, checkpoint_interval=10)
    config["algo_kwargs"] |= {"eval_interval": 30, "keep_checkpoints": 2}
    result = train(config, callbacks=[StopAfter(95)])
    result = resume(result.run_dir)
    assert result.best_checkpoint_path is not None
    assert result.best_checkpoint_path.name == "step_000000060"
    assert (result.metrics["best_return"], result.metrics["best_step"]) == (9.0, 60)
    saved = {path.name for path in (result.run_dir / "checkpoints").glob("step_*")}
    assert saved == {"step_000000060", "step_000000110", "step_000000120"}
    one, two = result.best_checkpoint_path / MODEL, result.checkpoint_path / MODEL
    assert one.read_bytes() != two.read_bytes()


def test_damaged_best_model_is_forgotten(
    entry: AlgorithmEntry, kind: str, small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged best checkpoint is set aside, and no pointer to it remains."""
    evaluations(monkeypatch, 1.0, 2.0, 9.0, 3.0)
    config = small_config(algo=entry.name, kind=kind, eval_episodes=1, checkpoint_interval=10)
    config["algo_kwargs"] |= {"eval_interval": 30, "keep_checkpoints": 2}
    result = train(config, callbacks=[StopAfter(90)])
    assert result.best_checkpoint_path == result.checkpoint_path
    (result.checkpoint_path / MODEL).write_bytes(b"")
    again = resume(result.run_dir, ["total_timesteps=100", "eval_episodes=0"])
    assert again.best_checkpoint_path is None
    assert (again.metrics["best_return"], again.metrics["best_step"]) == (None, None)
    with pytest.raises(ConfigError, match="has no best checkpoint"):
        evaluate_checkpoint(result.run_dir, best=True)


def test_warm_up_and_schedule_inside_training(
    entry: AlgorithmEntry, kind: str, small_config: Config
) -> None:
    """Warm-up over 25 steps, then linear decay to 0 at step 80, with a resume in between."""
    config = small_config(algo=entry.name, kind=kind, total_timesteps=80)
    config["algo_kwargs"] |= {"learning_rate_schedule": "linear", "learning_rate_warmup": 25}
    factors: list[float] = []

    class Watch(Callback):
        def on_step(self, session: Session) -> None:
            optimizers = session.algorithm.optimizers
            reached = [optimizers[key] for key in session.algorithm.scheduled or optimizers]
            rates = {float(o.learning_rate) / o.base_learning_rate for o in reached}  # type: ignore[arg-type,operator]
            assert max(rates) - min(rates) < 1e-6  # one factor for all scheduled optimizers
            factors.append(float(rates.pop()))

    stopped = train(config, callbacks=[Watch(), StopAfter(50)])
    resume(stopped.run_dir, callbacks=[Watch()])
    steps = range(0, 80, BLOCK if entry.mode == "offline" else 1)
    expected = [(i + 1) / 25 if i < 25 else 1 - (i - 25) / 55 for i in steps]
    assert factors == pytest.approx(expected, rel=1e-5)
    rows = list(read_metrics(stopped.run_dir))
    assert all("learning_rate_factor" in row for row in rows if "updates" in row)


def test_schedule_changes_learning_rate_inside_training(
    entry: AlgorithmEntry, kind: str, small_config: Config
) -> None:
    config = small_config(algo=entry.name, kind=kind, total_timesteps=60)
    config["algo_kwargs"] |= {"learning_rate_schedule": "linear", "learning_rate_final": 0.1}
    rates = []
    base: Any = next(iter(build(entry, kind).optimizers.values())).base_learning_rate

    class Watch(Callback):
        def on_step(self, session: Session) -> None:
            optimizer = next(iter(session.algorithm.optimizers.values()))
            rates.append(float(optimizer.learning_rate))  # type: ignore[arg-type]

    train(config, callbacks=[Watch()])
    assert rates[0] == pytest.approx(base)
    last = 60 - (BLOCK if entry.mode == "offline" else 1)
    assert rates[-1] == pytest.approx(base * (1 - 0.9 * last / 60), rel=1e-4)
    assert rates == sorted(rates, reverse=True)
