"""Fitted Q evaluation against a reference, on known values, and on checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training import ConfigError, evaluate_checkpoint, train
from rl_training.algorithms.base import Algorithm, Due
from rl_training.algorithms.config import AlgorithmConfig
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.fqe import FittedQ, FQEConfig
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.algorithms.td3 import TD3Algorithm
from rl_training.data import TransitionDataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.runtime.compilation import UpdateTracer
from rl_training.runtime.off_policy_evaluation import discounted_returns, fitted_q_evaluation
from rl_training.runtime.recording import record_random
from rl_training.types import Batch, EnvSpec, Metrics, Noise, NoiseSpec
from tests.golden import (
    OBS,
    RATE,
    ROWS,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    layers,
    make_batch,
    make_learner,
    reference_batch,
)
from tests.reference import fqe
from tests.reference.nn import initial_ensemble, tanh_forward

Config = Callable[..., dict[str, Any]]
OFFLINE = [entry for entry in REGISTRY.values() if entry.mode == "offline"]


# --- One update -----------------------------------------------------------------


def make_fitted() -> FittedQ:
    """Critics in float64, with non-default units and targets that differ from the critics."""
    policy = make_learner(TD3Algorithm)
    config = FQEConfig(hidden_sizes=(16, 16), learning_rate=RATE, tau=0.1)
    fitted = FittedQ(policy, config, torch.Generator().manual_seed(5)).double()
    fitted.target.add_(0.02 * torch.randn(fitted.target.shape, dtype=torch.float64))
    fitted.set_value_scale(-3.0, 2.5)
    return fitted


def test_updates_equal_the_reference() -> None:
    fitted = make_fitted()
    actor = layers(fitted.policy.model.actor)  # type: ignore[union-attr,arg-type]
    state = initial_ensemble(layers(fitted.critic), layers(fitted.critic, fitted.target))
    hyper: Any = {"gamma": 0.99, "tau": 0.1, "critic_lr": RATE, "shift": -3.0, "scale": 2.5}
    before = fitted.policy.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    for step in range(3):
        batch = make_batch(step)
        ours = fitted.update(batch, {})
        state, theirs = fqe.full_update(
            state, reference_batch(batch), lambda obs: tanh_forward(actor, obs)[0], hyper
        )
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(fitted.critic), state["critics"])
    assert_same_network(layers(fitted.critic, fitted.target), state["target_critics"])
    for name, value in fitted.policy.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_update_can_be_traced() -> None:
    assert_trace_is_the_update(make_fitted())


def test_discrete_actions_can_be_traced() -> None:
    spec = EnvSpec(OBS, 4, discrete=True)
    policy = DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(16,))).double()
    fitted = FittedQ(policy, FQEConfig(hidden_sizes=(16,)), torch.Generator()).double()
    indices = torch.arange(ROWS, dtype=torch.float64).remainder(4).unsqueeze(-1)
    batch = make_batch()._replace(actions=indices)
    q = fitted.values(batch.obs, indices)
    one_hot = torch.eye(4, dtype=torch.float64)[indices.squeeze(-1).long()]
    torch.testing.assert_close(q, fitted.critic.q_values(batch.obs, one_hot))
    UpdateTracer(fitted, batch, {}).trace(frozenset())


# --- A known answer -------------------------------------------------------------

LENGTH, GAMMA = 5, 0.9
BASE = np.array([0.0, 1.0, -0.5, 0.3, 2.0])
SLOPE = np.array([1.0, -1.0, 0.5, 2.0, -1.0])
MEAN, STD = np.linspace(0.1, 0.4, LENGTH), np.linspace(0.5, 1.5, LENGTH)
GAIN = np.array([0.2, -0.3, 0.1, 0.25, -0.2])


class LinearPolicy(Algorithm):
    """A fixed policy, linear in normalized observations."""

    name: ClassVar[str] = "line"
    gain: Tensor

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec, AlgorithmConfig(), torch.Generator())
        self.register_buffer("gain", torch.from_numpy(GAIN).float())
        self.set_normalization(torch.from_numpy(MEAN), torch.from_numpy(STD))

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        return (obs @ self.gain).unsqueeze(-1)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def noise(self, batch_size: int) -> NoiseSpec:
        return {}

    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        raise AssertionError("a frozen policy is not updated")


def walk(episodes: int) -> TransitionDataset:
    """A walk through five states that terminates after the last: r = base(s) + slope(s) · a.

    Actions are uniform and include the policy's. Half of the episodes are truncated after three
    steps; the observation after the end is the first state.
    """
    rng = np.random.default_rng(0)
    names = ("observations", "actions", "rewards", "next_observations", "terminations")
    data: dict[str, list[Any]] = {key: [] for key in (*names, "truncations")}
    for episode in range(episodes):
        for state in range(LENGTH):
            action = rng.uniform(-0.6, 1.0)
            last = state == LENGTH - 1
            data["observations"].append(np.eye(LENGTH)[state])
            data["actions"].append([action])
            data["rewards"].append(BASE[state] + SLOPE[state] * action)
            data["next_observations"].append(np.eye(LENGTH)[0 if last else state + 1])
            data["terminations"].append(last)
            cut = bool(episode % 2) and state == 2
            data["truncations"].append(cut)
            if cut:
                break
    return TransitionDataset.from_dict({key: np.asarray(value) for key, value in data.items()})


def exact_value() -> float:
    """Σ γ^s r(s, π(s)) from the first state to the last."""
    normalized = (np.eye(LENGTH) - MEAN) / STD
    rewards = BASE + SLOPE * (normalized @ GAIN)
    return float((GAMMA ** np.arange(LENGTH) * rewards).sum())


def test_finds_a_known_value() -> None:
    """Within 0.03; the data's return and common mistakes are at least 0.3 away."""
    policy = LinearPolicy(EnvSpec(LENGTH, 1, (-1.0,), (1.0,)))
    config = FQEConfig(
        gamma=GAMMA, tau=0.05, learning_rate=2e-3, hidden_sizes=(32, 32), batch_size=64
    )
    reported: list[tuple[int, int]] = []
    result = fitted_q_evaluation(
        *(policy, walk(60)),
        config=config,
        updates=1_500,
        seed=1,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert result["fqe_value"] == pytest.approx(exact_value(), abs=0.03)
    assert abs(result["fqe_return_mean_data"] - exact_value()) > 0.3
    assert result["fqe_value_std"] < 1e-6  # every episode starts in the same state
    assert result["fqe_critic_spread"] < 0.05
    assert (
        result["fqe_loss"] < 1e-3
    )  # rewards have no noise, so the Bellman equation can hold exactly
    assert (result["fqe_episodes"], result["fqe_updates"]) == (60, 1_500)
    assert reported[-1] == (1_500, 1_500)


def test_returns_of_the_data() -> None:
    """Episodes of three and two rows: returns 1 + 2γ + 4γ² and 8 + 16γ, and returns to go."""
    rows = 5
    data = {
        "observations": np.zeros((rows, 1)),
        "actions": np.zeros((rows, 1)),
        "rewards": np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
        "next_observations": np.zeros((rows, 1)),
        "terminations": np.array([0, 0, 1, 0, 0]),
        "truncations": np.array([0, 0, 0, 0, 1]),
    }
    found = discounted_returns(TransitionDataset.from_dict(data), 0.5)
    np.testing.assert_allclose(found.episodes, [3.0, 16.0])
    assert found.mean == pytest.approx(np.mean([3.0, 4.0, 4.0, 16.0, 16.0]))
    assert found.deviation == pytest.approx(np.std([3.0, 4.0, 4.0, 16.0, 16.0]))


# --- Checkpoints ----------------------------------------------------------------


@pytest.mark.parametrize("entry", OFFLINE, ids=lambda entry: entry.name)
def test_run_is_evaluated_on_its_dataset(entry: AlgorithmEntry, small_config: Config) -> None:
    """Reward transforms change what is learned, but not the unit of the estimate."""
    config = small_config(algo=entry.name, total_timesteps=20)
    config["algo_kwargs"] |= {"normalize_states": True, "reward_scale": 0.1, "reward_shift": 3.0}
    result = train(config)
    found = evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=40, seed=2)
    again = evaluate_checkpoint(result.checkpoint_path, fqe=True, fqe_updates=40, seed=2)
    assert found == again
    assert found["gamma"] == 0.99
    assert found["fqe_episodes"] == 3
    assert -900 < found["fqe_return_mean_data"] < -200  # Pendulum's own rewards
    assert -900 < found["fqe_value"] < -200
    other = evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=40, seed=3)
    assert other["fqe_value"] != found["fqe_value"]


def test_another_dataset_for_an_online_run(
    small_config: Config, tmp_path: Path, recorded: Path
) -> None:
    """Discrete actions are one-hot inputs of the critics."""
    result = train(small_config(algo="dqn", total_timesteps=40))
    with pytest.raises(ConfigError, match="online and has no dataset"):
        evaluate_checkpoint(result.run_dir, fqe=True)
    file = tmp_path / "cartpole.npz"
    write_arrays(record_random("CartPole-v1", {}, 200, 0), file)
    found = evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=20, dataset=str(file))
    assert 5 < found["fqe_return_mean_data"] < 60
    assert np.isfinite(found["fqe_value"])
    with pytest.raises(ConfigError, match="use data from the same environment"):
        evaluate_checkpoint(result.run_dir, fqe=True, fqe_updates=20, dataset=str(recorded))


def test_unsupported_evaluations_raise(
    small_config: Config, tmp_path: Path, recorded: Path
) -> None:
    file = tmp_path / "mine.npz"
    file.write_bytes(recorded.read_bytes())
    config = small_config(algo="bc", total_timesteps=20)
    config["algo_kwargs"]["dataset_path"] = str(file)
    run = train(config).run_dir
    with pytest.raises(ConfigError, match="fqe_updates = 0: should be at least 1"):
        evaluate_checkpoint(run, fqe=True, fqe_updates=0)
    for played in ({"video": "film.mp4"}, {"episodes": 10}, {"env_kwargs": {"g": 1.0}}):
        with pytest.raises(
            ConfigError,
            match="fqe does not play episodes: leave out episodes, video, env, env_id and env_kw",
        ):
            evaluate_checkpoint(run, fqe=True, **played)
    with pytest.raises(ConfigError, match="set fqe as well"):
        evaluate_checkpoint(run, dataset=str(recorded))
    file.unlink()
    write_arrays(record_random("Pendulum-v1", {}, 450, 1), file)
    with pytest.raises(ConfigError, match="differs from the data that"):
        evaluate_checkpoint(run, fqe=True, fqe_updates=1)
