"""NaN and infinity stop a run with a clear error and are never saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from rl_training.algorithms import base, sac
from rl_training.api.checkpoints import check_obs, predict_checkpoint
from rl_training.api.training import train
from rl_training.envs import EnvConfig, describe_env
from rl_training.errors import ConfigError, TrainingError
from rl_training.runtime.checkpointing import MODEL, OPTIMIZERS, list_steps, open_checkpoint
from rl_training.runtime.evaluation import Evaluator, Policy
from tests.faults.envs import POISON, PoisonEnv, register
from tests.faults.runs import config_for

INFINITY, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _set_one_thread_and_register_env() -> None:
    torch.set_num_threads(1)
    register()


def _train(folder: Path, **changes: Any) -> str:
    """Train until the error; return its text."""
    config = config_for(folder, **{"train_frequency": 1} | changes)
    with pytest.raises(TrainingError) as caught:
        train(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _assert_all_finite(folder: Path, *, at_least: int) -> None:
    """Check that every checkpoint can be loaded and contains only finite numbers."""
    (run_dir,) = [path for path in folder.iterdir() if path.is_dir()]
    steps = list_steps(run_dir)
    assert int(steps[-1].name.removeprefix("step_")) >= at_least
    for path in steps:
        checkpoint = open_checkpoint(path, replay=True)
        for name, tensor in checkpoint.tensors(MODEL, OPTIMIZERS).items():
            assert tensor.isfinite().all(), name
        for name in checkpoint.manifest["replay"]:
            assert np.isfinite(np.load(run_dir / "replay" / f"{name}.npy")).all()
        obs = np.zeros(checkpoint.manifest["env_spec"]["obs_dim"])
        assert np.isfinite(predict_checkpoint(path, obs)).all()
    assert '"failed"' in (run_dir / "run.json").read_text()


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY, 1e39])
@pytest.mark.parametrize("quantity", ["observation", "reward"])
def test_nonfinite_step_stops_the_run(tmp_path: Path, quantity: str, value: float) -> None:
    kwargs = {"quantity": quantity, "at": 60, "value": str(value)}
    message = _train(tmp_path, env_id=POISON, env_kwargs=kwargs, eval_episodes=0)
    shown = {1e39: "inf"}.get(value, str(value))  # too large for float32
    assert f"the {quantity} of environment 0" in message
    assert f"is {shown} at step 60" in message
    _assert_all_finite(tmp_path, at_least=50)


@pytest.mark.parametrize(("at", "step"), [(1, 0), (3, 80)])
def test_nonfinite_reset_stops_the_run(tmp_path: Path, at: int, step: int) -> None:
    """The first reset, and the reset at the end of an episode."""
    kwargs = {"quantity": "reset", "at": at, "length": 40}
    message = _train(tmp_path, env_id=POISON, env_kwargs=kwargs, eval_episodes=0)
    assert "the observation of environment 0, entry 1 is nan" in message
    assert f"at step {step}" in message
    if step:
        _assert_all_finite(tmp_path, at_least=75)


def test_error_contains_the_environment_index(tmp_path: Path) -> None:
    step, order = PoisonEnv.step, list[PoisonEnv]()

    def poisoned(self: PoisonEnv, action: Any) -> Any:
        if self not in order:
            order.append(self)  # the first environment is tried before the run and closed
        obs, reward, ended, cut, info = step(self, action)
        due = self is order[-1] and self.steps == 30
        return obs, NAN if due else reward, ended, cut, info

    with mock.patch.object(PoisonEnv, "step", poisoned):
        message = _train(tmp_path, env_id=POISON, env_kwargs={"at": 0}, eval_episodes=0, num_envs=2)
    assert "the reward of environment 1 is nan at step" in message


def test_nonfinite_evaluation_stops_the_run(tmp_path: Path) -> None:
    kwargs = {"quantity": "reward", "at": 190, "length": 200}
    message = _train(tmp_path, env_id=POISON, env_kwargs=kwargs)
    assert "evaluation" in message
    assert "nan" in message
    assert "at step 50" in message
    _assert_all_finite(tmp_path, at_least=25)


@pytest.mark.parametrize("value", [NAN, INFINITY, 1e39])
@pytest.mark.parametrize(("quantity", "at", "steps"), [("observation", 200, 200), ("reset", 1, 0)])
def test_nonfinite_observation_stops_an_evaluation(
    quantity: str, at: int, steps: int, value: float
) -> None:
    """Also the last observation of an episode; rewards stay finite."""
    evaluator = Evaluator(POISON, {"quantity": quantity, "at": at, "value": str(value)}, seed=0)
    policy: Any = lambda _obs: np.zeros(1, dtype=np.float32)  # noqa: E731
    with pytest.raises(TrainingError) as caught:
        evaluator.evaluate(policy, 1)
    told = f"entry 1 of the observation is {value} after {steps} steps of an evaluation episode"
    assert str(caught.value) == told


def test_predict_refuses_values_too_large_for_float32() -> None:
    spec = describe_env("Pendulum-v1", EnvConfig())
    policy = Policy(sac.SACAlgorithm.build(spec), spec)
    for obs in ([1e39, 0.0, 0.0], [[0.0, 0.0, 0.0], [0.0, -1e39, 0.0]]):
        with pytest.raises(ConfigError, match="not finite in float32"):
            policy(check_obs(np.array(obs), spec))


def test_diverging_loss_stops_the_run(tmp_path: Path) -> None:
    rewards = {"wrappers": {"reward": {"scale": 1e30}}}
    message = _train(tmp_path, env_kwargs=rewards)
    assert " at step " in message
    assert "nan" in message or "inf" in message
    _assert_all_finite(tmp_path, at_least=0)


@pytest.mark.parametrize(
    ("module", "loss"), [(base, "critic"), (sac, "actor"), (sac, "temperature")]
)
def test_error_contains_the_nan_loss(tmp_path: Path, module: Any, loss: str) -> None:
    original = getattr(module, f"{loss}_loss")
    calls = 0

    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        value: torch.Tensor = original(*args, **kwargs)
        return value * NAN if calls == 50 else value

    with mock.patch.object(module, f"{loss}_loss", poisoned):
        message = _train(tmp_path)
    assert message == f"loss/{loss} is nan after update 50 at step 70"
    _assert_all_finite(tmp_path, at_least=50)


def test_nan_weight_is_never_saved(tmp_path: Path) -> None:
    """The losses are finite but the gradient is not, so only the weights show it."""
    original = sac.SACAlgorithm.update
    calls = 0

    def poisoned(self: sac.SACAlgorithm, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        metrics = original(self, *args, **kwargs)
        if calls == 55:  # step 75, where a checkpoint is due
            with torch.no_grad():
                self.model.actor.flat[3] = NAN
        return metrics

    with mock.patch.object(sac.SACAlgorithm, "update", poisoned):
        message = _train(tmp_path)
    assert "actor" in message
    assert "not finite at step 75" in message
    _assert_all_finite(tmp_path, at_least=50)


def test_error_contains_the_nan_action(tmp_path: Path) -> None:
    """A NaN in the actor is detected before the action reaches the environment."""
    original = sac.SACAlgorithm.update
    calls = 0

    def poisoned(self: sac.SACAlgorithm, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        metrics = original(self, *args, **kwargs)
        if calls == 60:
            with torch.no_grad():
                self.model.actor.flat.fill_(NAN)
        return metrics

    with mock.patch.object(sac.SACAlgorithm, "update", poisoned):
        message = _train(tmp_path)
    assert "the action of environment 0, entry 0 is nan at step 81" in message
    _assert_all_finite(tmp_path, at_least=75)
