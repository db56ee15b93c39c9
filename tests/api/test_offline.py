"""Offline training: budgets, blocks, exact resume, held-out rows and no environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import (
    BC,
    ConfigError,
    evaluate_checkpoint,
    predict_checkpoint,
    resume,
    train,
)
from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.cli import app
from rl_training.data import EpochSampler, TransitionDataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.experiment.build import build_algorithm
from rl_training.experiment.config import make_config
from rl_training.experiment.dataset_source import STD_FLOOR, prepare_sampler
from rl_training.experiment.run_directory import list_runs
from rl_training.experiment.task import check_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import MODEL, open_checkpoint
from rl_training.runtime.engine import BLOCK, Engine
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.recording import record_random
from rl_training.runtime.training_loop import next_stop
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.conftest import TINY

Config = Callable[..., dict[str, Any]]
OFFLINE = [entry for entry in REGISTRY.values() if entry.mode == "offline"]
every_offline = pytest.mark.parametrize("entry", OFFLINE, ids=lambda entry: entry.name)
SAMPLING = ("replacement", "epochs")
SHORT_EPISODES = {"max_episode_steps": 20}


def crash_and_resume(config: dict[str, Any], *steps: int) -> Any:
    """Train, crash at each of ``steps``, resume each time, and finish."""
    runs = Path(config["output_dir"])
    before = set(runs.glob("*")) if runs.exists() else set()
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(steps[0])])
    (run_dir,) = set(runs.glob("*")) - before
    for step in steps[1:]:
        with pytest.raises(CrashError):
            resume(run_dir, callbacks=[CrashAt(step)])
    return resume(run_dir)


def weights(result: Any) -> bytes:
    return bytes((result.checkpoint_path / MODEL).read_bytes())


# --- The loop -----------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLING)
@every_offline
def test_resume_in_the_middle_of_a_block_and_an_epoch(
    entry: AlgorithmEntry, small_config: Config, sampling: str
) -> None:
    """Checkpoints at 30, 60, 90 and 120: the first and the third are inside a block of 20."""
    config = small_config(algo=entry.name, eval_episodes=1, checkpoint_interval=30)
    config |= {"log_interval": 7, "total_timesteps": 130, "env_kwargs": SHORT_EPISODES}
    config["algo_kwargs"] |= {"sampling": sampling, "eval_interval": 50}
    config["algo_kwargs"] |= {"learning_rate_schedule": "cosine", "normalize_states": True}
    whole = train(config)
    assert_same_run(whole, crash_and_resume(config, 40, 60, 97))


@pytest.mark.parametrize("sampling", SAMPLING)
@every_offline
def test_intervals_do_not_change_the_result(
    entry: AlgorithmEntry, small_config: Config, sampling: str
) -> None:
    def run(**changes: Any) -> bytes:
        config = small_config(algo=entry.name, total_timesteps=90, env_kwargs=SHORT_EPISODES)
        kwargs = {"sampling": sampling, "learning_rate_schedule": "linear"}
        config["algo_kwargs"] |= kwargs | changes.pop("kwargs", {})
        return weights(train(config | changes))

    plain = run(log_interval=1000, checkpoint_interval=0)
    assert plain == run(log_interval=1, checkpoint_interval=13)
    assert plain == run(log_interval=17, eval_episodes=1, kwargs={"eval_interval": 11})


@every_offline
def test_extending_a_finished_run_equals_the_longer_run(
    entry: AlgorithmEntry, small_config: Config
) -> None:
    """The shorter run ends inside a block."""
    short = train(small_config(algo=entry.name, total_timesteps=70))
    longer = resume(short.run_dir, ["total_timesteps=120"])
    config = small_config(algo=entry.name, total_timesteps=120)
    config["algo_kwargs"] |= {"schedule_horizon": 70}
    assert weights(train(config)) == weights(longer)


def test_next_stop() -> None:
    assert next_stop(0, (50, 0, 30), 100) == BLOCK
    assert next_stop(20, (50, 0, 30), 100) == 30
    assert next_stop(40, (50, 0, 45), 100) == 45
    assert next_stop(80, (50, 0, 0), 91) == 91


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@every_offline
@pytest.mark.usefixtures("without_compiler")
def test_updates_do_not_depend_on_call_lengths(
    entry: AlgorithmEntry, mode: Any, recorded: Path
) -> None:
    """90 updates in calls of any length and in any mode, saved and restored in between."""
    data, spec = dict(np.load(recorded)), check_config_spec(recorded, entry.name)
    states = []
    for calls in ([90], [7, 13, 25, 1, 44], [19, 1, 1, 60, 9]):
        dataset = TransitionDataset.from_dict(data, spec=spec)
        own = {"hidden_sizes": (16, 16), "batch_size": 16} | TINY.get(entry.name, {})
        learner = entry.learner_class().build(spec, entry.config_class()(**own), seed=3)
        dataset.supply(learner.fields())
        engine = Engine(learner, EpochSampler(dataset), seed=1, mode=mode)
        for count in calls:
            engine.run(count)
            saved = engine.state_dict()
            torch.rand(5, generator=engine.generator)
            engine.load_state_dict(saved)
        assert engine.mode == mode
        states.append({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    for other in states[1:]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in states[0].items())


def check_config_spec(recorded: Path, algo: str) -> Any:
    data = {"dataset_kind": "npz", "dataset_path": str(recorded)}
    config = {"algo": algo, "env_id": "Pendulum-v1", "total_timesteps": 1, "algo_kwargs": data}
    return check_config(make_config(config)).spec


# --- Budgets ------------------------------------------------------------------


def test_budget_in_epochs(small_config: Config) -> None:
    """450 rows in batches of 16 are 28.125 updates, so two epochs are 57 updates."""
    config = small_config(algo="bc")
    del config["total_timesteps"]
    config["algo_kwargs"] |= {"num_epochs": 2}
    result = train(config)
    assert result.metrics["step"] == 57
    kept = open_checkpoint(result.checkpoint_path).manifest["config"]
    assert (kept["total_timesteps"], kept["algo_kwargs"]["schedule_horizon"]) == (57, 57)
    with pytest.raises(ConfigError, match="finished at step 57"):
        resume(result.run_dir, ["num_epochs=1"])
    assert resume(result.run_dir, ["num_epochs=3"]).metrics["step"] == 85
    assert resume(result.run_dir, ["total_timesteps=90"]).metrics["step"] == 90


def test_epochs_and_steps_must_agree(small_config: Config) -> None:
    config = small_config(algo="bc", total_timesteps=57)
    config["algo_kwargs"] |= {"num_epochs": 2}
    assert check_config(make_config(config)).config.total_timesteps == 57
    with pytest.raises(ConfigError, match="57 updates, but total_timesteps is 58: set only one"):
        check_config(make_config(config | {"total_timesteps": 58}))


# --- The data of a run --------------------------------------------------------


def test_changed_data_is_refused(small_config: Config, tmp_path: Path, recorded: Path) -> None:
    copy = tmp_path / "copy.npz"
    data = dict(np.load(recorded))
    np.savez(copy, **data)
    config = small_config(algo="bc", algo_kwargs={"dataset_path": str(copy)})
    result = train(config)
    record = open_checkpoint(result.checkpoint_path).manifest["dataset"]
    assert (record["source"], record["rows"]) == (str(copy), 450)
    data["rewards"][3] += 1
    np.savez(copy, **data)
    with pytest.raises(
        ConfigError, match=r"copy\.npz differs from the data that .* trained on"
    ) as found:
        resume(result.run_dir, ["total_timesteps=160"])
    assert found.value.exit_code == 2  # an input error like any other
    with pytest.raises(SystemExit) as left:
        app(["resume", str(result.run_dir), "total_timesteps=160"])
    assert left.value.code == 2
    moved = resume(result.run_dir, ["total_timesteps=160", f"dataset_path={recorded}"])
    assert moved.metrics["step"] == 160


@pytest.mark.parametrize(
    ("changes", "kwargs", "sentence"),
    [
        ({}, {"dataset_kind": None, "dataset_path": None}, "bc learns from recorded data: set"),
        ({"num_envs": 2}, {}, "num_envs = 2: bc learns from recorded data"),
        ({"env_id": "CartPole-v1"}, {}, "2 discrete actions: use data from the same environment"),
        ({"env_id": "MountainCarContinuous-v0"}, {}, "use data from the same environment"),
        ({}, {"buffer_capacity": 10}, "'buffer_capacity' is not an option of BC"),
        ({"env_id": None}, {}, "set action_low and action_high, or action_range=data"),
        ({}, {"action_low": -2, "action_high": 2}, "Pendulum-v1 has its own action bounds"),
        ({"env_id": None}, {"action_low": -2}, "action_low and action_high must be set together"),
        ({"env_id": None}, {"action_low": 2, "action_high": -2}, "must be less than"),
        ({"env_id": None}, {"action_low": [-2, -2], "action_high": 2}, "have 2 and 1 values"),
        ({"env_id": None}, {"action_low": -1, "action_high": 1}, "outside its bounds"),
        ({"env_kwargs": {"wrappers": {"reward": {"scale": 2.0}}}}, {}, "use the reward_"),
        ({}, {"validation_fraction": 1.0}, "validation_fraction = 1.0"),
        ({}, {"batch_size": 2_000, "sampling": "epochs"}, "training rows"),
        (
            {},
            {"early_stopping": {"metric": "eval_loss", "mode": "min", "patience": 1}},
            "set eval_interval above 0",
        ),
        (
            {},
            {
                "early_stopping": {"metric": "eval_loss", "mode": "min", "patience": 1},
                "eval_interval": 20,
            },
            "set validation_fraction above 0",
        ),
        (
            {},
            {"early_stopping": {"metric": "eval_loss", "patience": 1}},
            "smaller losses are better",
        ),
    ],
)
def test_invalid_settings_raise_before_anything_is_written(
    small_config: Config, tmp_path: Path, changes: Any, kwargs: Any, sentence: str
) -> None:
    config = small_config(algo="bc", **changes)
    config["algo_kwargs"] |= kwargs
    with pytest.raises(ConfigError) as caught:
        train(config)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_online_algorithms_require_an_environment_and_steps() -> None:
    with pytest.raises(ConfigError, match="'env_id' is missing"):
        make_config({"algo": "sac", "total_timesteps": 10})
    with pytest.raises(ConfigError, match="num_epochs needs recorded data"):
        make_config({"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {"num_epochs": 1}})


# --- Held-out rows ------------------------------------------------------------


def rows_of(lengths: list[int]) -> TransitionDataset:
    """Episodes whose observations are their index."""
    total = sum(lengths)
    ends = np.zeros(total, bool)
    ends[np.cumsum(lengths) - 1] = True
    names = np.repeat(np.arange(len(lengths)), lengths).astype(np.float32)[:, None]
    return TransitionDataset.from_dict(
        {
            "observations": names,
            "next_observations": names,
            "actions": np.zeros((total, 1)),
            "rewards": np.arange(total),
            "terminals": np.zeros(total),
            "timeouts": ends,
        }
    )


def test_whole_episodes_are_held_out() -> None:
    dataset, everything = rows_of([5] * 40), rows_of([5] * 40)
    held = dataset.hold_out(0.1, seed=3)
    assert (len(dataset), len(held)) == (180, 20)
    ours, theirs = set(dataset.column("observations")[:, 0]), set(held.column("observations")[:, 0])
    assert not ours & theirs
    assert len(theirs) == 4
    together = np.concatenate([dataset.column("rewards"), held.column("rewards")])
    assert sorted(together) == everything.column("rewards").tolist()
    assert (np.diff(dataset.column("rewards")) > 0).all()  # the order is kept
    assert torch.equal(rows_of([5] * 40).hold_out(0.1, seed=3).rows, held.rows)
    assert not torch.equal(rows_of([5] * 40).hold_out(0.1, seed=4).rows, held.rows)


def test_hold_out_keeps_and_removes_rows() -> None:
    for lengths, fraction in (([9, 1], 0.99), ([3, 3, 3], 0.01), ([10], 0.3), ([2], 0.9)):
        dataset = rows_of(lengths)
        held = dataset.hold_out(fraction, seed=0)
        assert len(dataset) > 0
        assert len(held) > 0
    assert len(rows_of([10]).hold_out(0.3, seed=0)) == 3
    with pytest.raises(ConfigError, match="one row"):
        rows_of([1]).hold_out(0.5, seed=0)


@pytest.mark.parametrize("lengths", [[900, *[10] * 10], [2000, 100, 100], [200] * 2, [20] * 50])
def test_hold_out_is_close_to_the_fraction(lengths: list[int]) -> None:
    """An episode that is much longer than the fraction is not held out."""
    for seed in range(20):
        share = len(rows_of(lengths).hold_out(0.05, seed=seed)) / sum(lengths)
        assert 0.02 < share < 0.08


@every_offline
def test_held_out_losses_do_not_change_training(entry: AlgorithmEntry, recorded: Path) -> None:
    spec = check_config_spec(recorded, entry.name)
    own = {"hidden_sizes": (16, 16), "batch_size": 16} | TINY.get(entry.name, {})
    learner = entry.learner_class().build(spec, entry.config_class()(**own), seed=3)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    dataset = TransitionDataset.from_dict(dict(np.load(recorded)), spec=spec)
    dataset.supply(learner.fields())
    batch = dataset.batch(torch.arange(16))
    noise = draw_noise(learner.noise(16), torch.Generator().manual_seed(0))
    losses = learner.held_out_losses(batch, noise)
    assert all(torch.equal(t, before[n]) for n, t in learner.state_dict().items())
    assert losses
    assert all(name.startswith("loss/") and value.dim() == 0 for name, value in losses.items())
    general = Algorithm.held_out_losses(learner, batch, noise)
    for name, value in general.items():
        torch.testing.assert_close(losses[name], value)


def test_held_out_rows_use_training_statistics(small_config: Config) -> None:
    kwargs = {"validation_fraction": 0.2, "normalize_states": True}
    task = check_config(make_config(small_config(algo="bc", algo_kwargs=kwargs)).resolved())
    assert task.data is not None
    assert task.data.held_out is not None
    raw, statistics = task.data.held_out.column("observations").copy(), task.data.train.statistics()
    learner = build_algorithm(task.config, task.spec, torch.device("cpu"))
    prepare_sampler(task.config, task.data, learner)
    expected = (raw - statistics.obs_mean) / (statistics.obs_std + STD_FLOOR)
    found = task.data.held_out.column("observations")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# --- Without an environment ---------------------------------------------------


@every_offline
def test_run_without_an_environment(entry: AlgorithmEntry, small_config: Config) -> None:
    config = small_config(algo=entry.name, env_id=None)
    config["algo_kwargs"] |= {"action_low": -2.0, "action_high": [2.0], "eval_interval": 30}
    config["algo_kwargs"] |= {"normalize_states": True}
    result = train(config)
    rows = list(read_metrics(result.run_dir))
    losses = {row["step"]: row["eval_loss"] for row in rows if "eval_loss" in row}
    assert list(losses) == [30, 60, 90, 120]
    assert result.metrics["best_loss"] == min(losses.values())
    assert losses[result.metrics["best_step"]] == result.metrics["best_loss"]
    assert not any("eval_return_mean" in row for row in rows)
    (row,) = list_runs(result.run_dir)
    assert (row.best_return, row.best_loss, row.last_loss) == (
        None,
        result.metrics["best_loss"],
        losses[120],
    )
    again = evaluate_checkpoint(result.run_dir)
    assert (again["env_id"], again["eval_loss"]) == (None, losses[120])
    terms = {k: v for k, v in again.items() if k.startswith("eval_loss_")}
    for part in entry.learner_class().loss_parts:  # part of another loss, and not counted twice
        assert terms.pop(part.replace("loss/", "eval_loss_")) != 0.0
    assert again["eval_loss"] == sum(terms.values())
    best = evaluate_checkpoint(result.run_dir, best=True)
    assert best["eval_loss"] == pytest.approx(result.metrics["best_loss"])
    actions = predict_checkpoint(result.run_dir, np.zeros((5, 3)))
    assert actions.shape == (5, 1)
    assert_same_run(result, crash_and_resume(config, 50, 95))


def test_loader_notes_are_reported_once(
    small_config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guesses are warnings, other notes are messages; complete data has only advice."""
    config = small_config(algo="bc", total_timesteps=40)
    told: list[str] = []

    class Watcher(Callback):
        def on_message(self, session: Any, text: str) -> None:
            told.append(text)

    train(config, callbacks=[Watcher()])
    assert "Warning" not in capsys.readouterr().err
    assert ["1 episode of 3" in text or "no episode terminates" in text for text in told] == [
        True
    ] * 2
    told.clear()
    data = record_random("Pendulum-v1", {}, 450, 0)
    data["done"] = data.pop("terminals") | data.pop("timeouts")
    data["extra"] = data["rewards"]
    del data["next_observations"]
    file = str(write_arrays(data, tmp_path / "odd.npz"))
    config["algo_kwargs"]["dataset_path"] = file
    run_dir = train(config, callbacks=[Watcher()]).run_dir
    warned = capsys.readouterr().err
    assert "next observations" not in warned  # a documented layout, not a guess
    assert warned.count(f"Warning: {file}: unused columns: 'extra'.") == 1
    assert told[0] == (
        f"{file}: 'done' is the only column for episode ends: it is read as terminations, which do "
        "not bootstrap."
    )
    assert told[1].startswith(f"{file}: episode ends at the time limit of 200 steps are read")
    assert told[2].startswith(f"{file}: next observations are taken from the following rows; 2")
    resume(run_dir, ["total_timesteps=60"], callbacks=[Watcher()])
    assert (capsys.readouterr().err, len(told)) == ("", 3)


def test_integer_actions_are_not_continuous(small_config: Config, tmp_path: Path) -> None:
    data = record_random("CartPole-v1", {}, 200, 0)
    assert data["actions"].dtype.kind == "i"
    write_arrays(data, tmp_path / "cartpole.npz")
    config = small_config(algo="bc", env_id=None)
    config["algo_kwargs"] |= {"action_low": 0, "action_high": 1}
    config["algo_kwargs"] |= {"dataset_path": str(tmp_path / "cartpole.npz")}
    with pytest.raises(ConfigError, match="has actions of type int64, but without env_id"):
        train(config)


def test_held_out_loss_stops_a_run(small_config: Config) -> None:
    config = small_config(algo="bc", env_id=None, total_timesteps=500)
    config["algo_kwargs"] |= {"action_low": -2.0, "action_high": 2.0, "eval_interval": 20}
    stopping = {"metric": "eval_loss", "mode": "min", "target_value": 1e9, "min_steps": 50}
    config["algo_kwargs"] |= {"early_stopping": stopping}
    result = train(config)
    assert (result.metrics["step"], result.stop_reason[:14]) == (60, "early_stopping")
    config["algo_kwargs"]["early_stopping"] = {"patience": 1}
    with pytest.raises(ConfigError, match="eval_return_mean requires an environment"):
        train(config)


def test_returns_and_losses_are_logged_together(small_config: Config) -> None:
    config = small_config(algo="bc", eval_episodes=1)
    config["algo_kwargs"] |= {"validation_fraction": 0.2}
    result = train(config)
    assert {"eval_return_mean", "eval_loss", "eval_loss_actor"} <= result.metrics.keys()
    assert result.metrics["best_return"] == result.metrics["eval_return_mean"]
    assert result.metrics["best_loss"] is None


# --- The managed class --------------------------------------------------------


def test_managed_class(tmp_path: Path, recorded: Path) -> None:
    options: Any = {"hidden_sizes": [16], "batch_size": 16, "tensorboard": False, "num_threads": 1}
    options |= {"dataset_kind": "npz", "dataset_path": str(recorded), "num_epochs": 1}
    agent = BC(output_dir=str(tmp_path), action_low=-2, action_high=2, **options).learn()
    assert agent.result is not None
    assert agent.result.metrics["step"] == 27  # 450 rows, the last 22 held out
    with pytest.raises(ConfigError, match="should be the number of additional steps"):
        agent.learn()
    assert agent.learn(20).result is not None
    assert "eval_loss" in BC.load(agent.save(tmp_path / "copy")).evaluate()
    played = agent.evaluate(2, env_id="Pendulum-v1")
    assert (played["env_id"], played["eval_length_mean"]) == ("Pendulum-v1", 200)
    with pytest.raises(ConfigError, match="expects 3 observation values"):
        agent.evaluate(2, env_id="MountainCarContinuous-v0")
