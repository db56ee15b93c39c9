"""Offline-to-online training: phases, batch shares, budgets, fine-tuning and exact resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import (
    RLPD,
    CheckpointError,
    ConfigError,
    EnvSpec,
    evaluate_checkpoint,
    finetune,
    resume,
    train,
)
from rl_training.algorithms.registry import REGISTRY, AlgorithmEntry
from rl_training.api.finetuning import make_finetuning_config
from rl_training.api.progress import ProgressCallback
from rl_training.data import MixedSampler, NormalizedSampler
from rl_training.data.dataset_writers import write_arrays
from rl_training.experiment.config import make_config
from rl_training.experiment.run_directory import read_config_file, read_run_info
from rl_training.experiment.saved_run import SavedRun
from rl_training.experiment.task import check_config
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpointing import (
    MODEL,
    OPTIMIZERS,
    list_steps,
    open_checkpoint,
    step_name,
)
from rl_training.runtime.engine import Engine
from rl_training.runtime.evaluation import EvaluationResult, Evaluator
from rl_training.runtime.logging import read_metrics
from rl_training.runtime.recording import record_random
from rl_training.runtime.session import Session
from rl_training.types import Batch
from tests.comparing import CrashAt, CrashError, assert_same_run, untimed_metrics
from tests.conftest import CASES, ENVS, case_id

Config = Callable[..., dict[str, Any]]
PRETRAINING = 50
"""Number of updates: two and a half blocks."""
SIZE = 15
"""An odd batch size: 8 rows from the dataset, 7 from the replay."""


@pytest.fixture
def prior(small_config: Config) -> Config:
    """A run of 50 updates and 90 environment steps, of which the first 30 are random."""

    def make(**changes: Any) -> dict[str, Any]:
        kwargs = {
            "offline_pretrain_updates": PRETRAINING,
            "gradient_updates_per_step": 2,
            "batch_size": SIZE,
        } | changes.pop("algo_kwargs", {})
        changes = {"total_timesteps": 90, "algo": "rlpd"} | changes
        return small_config(algo_kwargs=kwargs, **changes)

    return make


class Watch(Callback):
    """Records the state of the run after each step."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool, int, int]] = []

    def on_step(self, session: Session) -> None:
        mixed, state = session.engine.sampler, session.state
        assert isinstance(mixed, MixedSampler)
        assert session.collector is not None
        rows = int(session.collector.buffer.state_dict()["total"])
        self.seen.append((state.step, mixed.pretraining, state.updates, rows))


# --- Phases and budgets -------------------------------------------------------


def test_updates_come_before_environment_steps(prior: Config) -> None:
    watch = Watch()
    result = train(prior(), callbacks=[watch])
    offline = [row for row in watch.seen if row[0] <= PRETRAINING]
    assert [(step, updates, rows) for step, _, updates, rows in offline] == [
        (20, 20, 0),
        (40, 40, 0),
        (50, 50, 0),
    ]
    online = watch.seen[len(offline) :]
    assert [step for step, *_ in online] == list(range(51, 141))
    for step, pretraining, updates, rows in online:
        assert not pretraining
        assert rows == step - PRETRAINING
        assert updates == PRETRAINING + 2 * max(0, step - PRETRAINING - 30)
    assert result.metrics["step"] == 140
    assert result.metrics["env_steps"] == 90


def test_every_batch_has_the_configured_share(
    prior: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards identify the source: those of the dataset are shifted."""
    data = record_random("Pendulum-v1", {}, 450, 0)
    data["rewards"] = np.full(450, 100.0)
    config = prior()
    file = Path(config["output_dir"]).parent / "marked.npz"
    write_arrays(data, file)
    config["algo_kwargs"]["dataset_path"] = str(file)
    shares: list[int] = []
    draw = Engine._draw

    def counted(self: Engine, count: int) -> list[tuple[Batch, Any]]:
        block = draw(self, count)
        shares.extend(int((batch.rewards == 100.0).sum()) for batch, _ in block)
        return block

    monkeypatch.setattr(Engine, "_draw", counted)
    train(config)
    assert shares == [SIZE] * 60 + [8] * 120  # the last block of pretraining ends at 50


def test_budgets_are_counted_separately_and_logged(prior: Config) -> None:
    result = train(prior(eval_episodes=1, algo_kwargs={"eval_interval": 70}))
    wanted = {
        "env_steps": 90,
        "updates/pretraining": PRETRAINING,
        "updates/online": 120,
        "rows/offline": PRETRAINING * SIZE + 120 * 8,
        "rows/online": 120 * 7,
    }
    assert {key: result.metrics[key] for key in wanted} == wanted
    rows = list(read_metrics(result.run_dir))
    logged = {row["step"]: row for row in rows if "updates" in row}
    assert list(logged) == [20, 40, 60, 80, 100, 120, 140]
    assert {key: logged[140][key] for key in wanted} == wanted
    assert logged[40] == logged[40] | {
        "env_steps": 0,
        "updates/pretraining": 40,
        "updates/online": 0,
        "rows/offline": 40 * SIZE,
        "rows/online": 0,
    }
    assert logged[60]["env_steps"] == 10
    assert logged[60]["updates/online"] == 0  # before learning_starts
    evaluated = [(r["step"], r["env_steps"]) for r in rows if "eval_return_mean" in r]
    assert evaluated == [(70, 20), (140, 90)]
    saved = open_checkpoint(result.checkpoint_path).state()["trainer"]
    assert (saved["pretraining_updates"], saved["online_rows"]) == (PRETRAINING, 840)


@pytest.mark.parametrize(("ratio", "rows"), [(0.0, (0, 900)), (1.0, (900, 0))])
def test_extreme_ratios(prior: Config, ratio: float, rows: tuple[int, int]) -> None:
    config = prior(total_timesteps=60)
    config["algo_kwargs"] |= {"offline_batch_ratio": ratio, "offline_pretrain_updates": 0}
    metrics = train(config).metrics
    assert (metrics["rows/offline"], metrics["rows/online"]) == rows


def test_random_play_is_optional(prior: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = REGISTRY["rlpd"].learner_class()
    calls: list[int] = []
    act = learner.act

    def counted(self: Any, obs: Any, *, deterministic: bool, **inputs: Any) -> Any:
        calls.append(len(obs))
        return act(self, obs, deterministic=deterministic, **inputs)

    monkeypatch.setattr(learner, "act", counted)
    train(prior())
    assert len(calls) == 60
    calls.clear()
    train(prior(algo_kwargs={"random_play": False}))
    assert len(calls) == 90


def test_no_update_before_the_first_row(prior: Config) -> None:
    """With learning_starts=0, the first update comes after the first step."""
    watch = Watch()
    train(
        prior(total_timesteps=5, algo_kwargs={"learning_starts": 0}),
        callbacks=[watch],
    )
    assert [row[2:] for row in watch.seen[3:]] == [(50 + 2 * n, n) for n in range(1, 6)]


def test_display_shows_the_phase(prior: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.api.progress.PLAIN_SECONDS", 0.0)
    stream = StringIO()
    train(prior(), callbacks=[ProgressCallback(stream)])
    text = stream.getvalue()
    assert "pretraining 20/50 updates" in text
    assert "step 1/90" in text
    assert "step 90/90" in text


# --- Normalization and rewards ------------------------------------------------


class Look(Callback):
    """Stores the batches of one more block, and their raw rows."""

    def on_end(self, session: Session) -> None:
        mixed = session.engine.sampler
        assert isinstance(mixed, MixedSampler)
        self.learner = session.algorithm
        generator = torch.Generator().manual_seed(5)
        self.batch = mixed.sample(SIZE, generator)
        assert session.collector is not None
        replay = torch.from_numpy(session.collector.buffer.segment(0))
        recorded = mixed.offline
        while not hasattr(recorded, "rows"):
            recorded = getattr(recorded, "source", None) or recorded.dataset  # type: ignore[attr-defined]
        self.rows = torch.cat([recorded.rows, replay])


def test_both_sources_share_the_normalization(prior: Config, recorded: Path) -> None:
    look = Look()
    result = train(prior(algo_kwargs={"normalize_states": True}), callbacks=[look])
    shift, scale = look.learner.obs_shift, look.learner.obs_scale
    assert not torch.equal(scale, torch.ones(3))
    assert look.rows[:450, :3].numpy() == pytest.approx(np.load(recorded)["observations"])
    raw = torch.cat([look.rows[:, :3], look.rows[:, 5:8]], dim=1)
    width = torch.cat([shift, shift]), torch.cat([scale, scale])
    normalized = (raw - width[0]) * width[1]
    for row in torch.cat([look.batch.obs, look.batch.next_obs], dim=1):
        assert (normalized == row).all(1).any()
    other = resume(result.run_dir, ["total_timesteps=95"])
    assert other.metrics["env_steps"] == 95


def test_restored_normalization_applies_to_batches() -> None:
    class Ones(MixedSampler):
        def __init__(self) -> None:
            pass

        def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
            one = torch.ones(batch_size, 2)
            return Batch(one, one, one[:, 0], 2 * one, one[:, 0])

    shift, scale = torch.zeros(2), torch.ones(2)
    sampler = NormalizedSampler(Ones(), shift, scale)
    shift.fill_(3.0)
    scale.fill_(0.5)
    batch: Any = sampler.gather(4, torch.Generator())
    assert batch.obs.unique().tolist() == [-1.0]
    assert batch.next_obs.unique().tolist() == [-0.5]
    assert batch.actions.unique().tolist() == [1.0]


def test_both_sources_share_the_reward_transform(prior: Config) -> None:
    look = Look()
    train(prior(algo_kwargs={"reward_scale": 0.01, "reward_shift": 1.0}), callbacks=[look])
    rewards = look.rows[:, 4]
    assert len(rewards) == 450 + 90
    assert (rewards[450:] > 0.8).all()
    assert (rewards[450:] <= 1.0).all()
    assert (rewards[:450] > 0.8).all()


# --- Resume -------------------------------------------------------------------


@pytest.mark.parametrize(
    "crashes",
    [
        pytest.param((40,), id="in pretraining, in a block"),
        pytest.param((51, 75), id="at the change, before learning_starts"),
        pytest.param((100, 131), id="after learning_starts, in an episode"),
    ],
)
def test_resume_in_each_phase(prior: Config, crashes: tuple[int, ...]) -> None:
    """Checkpoints are at 13, 26, ..., not at the start of a block, and at 50."""
    config = prior(checkpoint_interval=13, eval_episodes=1, log_interval=15)
    config["env_kwargs"] = {"max_episode_steps": 37}
    config["algo_kwargs"] |= {
        "eval_interval": 25,
        "normalize_states": True,
        "learning_rate_schedule": "linear",
    }
    whole = train(config)
    before = set(Path(config["output_dir"]).glob("*"))
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(crashes[0])])
    (run_dir,) = set(Path(config["output_dir"]).glob("*")) - before
    for step in crashes[1:]:
        with pytest.raises(CrashError):
            resume(run_dir, callbacks=[CrashAt(step)])
    assert_same_run(whole, resume(run_dir))


def test_intervals_do_not_change_the_result(prior: Config) -> None:
    one = train(prior())
    two = train(prior(log_interval=7, checkpoint_interval=9))
    assert (one.checkpoint_path / MODEL).read_bytes() == (two.checkpoint_path / MODEL).read_bytes()


def test_managed_run_continues(prior: Config) -> None:
    config = prior()
    kwargs = config.pop("algo_kwargs")
    for key in ("algo", "total_timesteps"):
        del config[key]
    learner = RLPD(config.pop("env_id"), **config, **kwargs)
    assert learner.learn(20).result.metrics["env_steps"] == 20  # type: ignore[union-attr]
    assert learner.learn(15).result.metrics["env_steps"] == 35  # type: ignore[union-attr]


# --- Fine-tuning --------------------------------------------------------------

FINETUNED = [
    (entry, kind)
    for entry, kind in CASES
    if not entry.goals and entry.learner_class().learns_from_rewards
]
GO_ON = ("total_timesteps=60", "learning_starts=20", "checkpoint_interval=25", "log_interval=10")


def source_run(small_config: Config, algo: str, kind: str | None = None, **kwargs: Any) -> Any:
    return train(small_config(algo=algo, kind=kind, total_timesteps=47, algo_kwargs=kwargs))


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return open_checkpoint(path).tensors(MODEL, OPTIMIZERS)


class Start(Callback):
    """Stores the tensors of the learner before the first step."""

    def on_start(self, session: Session) -> None:
        learner = session.algorithm
        self.tensors = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
        self.updates = session.engine.updates


@pytest.mark.parametrize(("entry", "kind"), FINETUNED, ids=case_id)
def test_finetuning_keeps_every_tensor(
    small_config: Config, entry: AlgorithmEntry, kind: str
) -> None:
    offline = entry.mode != "online"
    keys: dict[str, Any] = {"learning_rate_schedule": "linear", "normalize_states": offline}
    source = source_run(small_config, entry.name, kind, **keys)
    start = Start()
    result = finetune(source.run_dir, ENVS[kind], GO_ON, callbacks=[start])
    saved = tensors(source.checkpoint_path)
    assert set(saved) == set(start.tensors)
    rates = [f"optimizers.{key}.learning_rate" for key in ("actor", "critic", "q")]
    rate = next(name for name in rates if name in saved)
    for name, tensor in saved.items():
        if name == rate:  # the schedule of the source has ended
            assert start.tensors[name] > 2 * tensor
        elif name.endswith("learning_rate"):  # IQL schedules only the actor
            assert start.tensors[name] >= tensor
        elif name != "epsilon":  # which follows the step count
            assert torch.equal(start.tensors[name], tensor), name
    assert start.updates == source.metrics["updates"]
    moved = tensors(result.checkpoint_path)  # the schedule ran again
    assert moved[rate] < 0.1 * start.tensors[rate]
    assert not all(torch.equal(moved[name], saved[name]) for name in saved)
    if offline:
        assert torch.equal(moved["obs_scale"], saved["obs_scale"])
        assert result.metrics["rows/offline"] == result.metrics["rows/online"] > 0
    else:
        assert result.metrics["rows/offline"] == 0
    assert (result.metrics["step"], result.metrics["env_steps"]) == (107, 60)
    assert evaluate_checkpoint(result.run_dir, episodes=1)["step"] == 107


def test_finetuned_run_includes_the_metrics_of_its_source(small_config: Config) -> None:
    source = source_run(small_config, "iql")
    result = finetune(source.run_dir, "Pendulum-v1", GO_ON)
    first = untimed_metrics(source.run_dir)
    history = untimed_metrics(result.run_dir)
    assert history[: len(first)] == first
    steps = [row["step"] for row in history]
    assert steps == sorted(steps)
    counted = [row["env_steps"] for row in history if "env_steps" in row]
    assert counted == [
        3,
        13,
        23,
        33,
        43,
        53,
        60,
    ]
    told = read_run_info(result.run_dir)["finetuned_from"]
    assert told == {"checkpoint": str(source.checkpoint_path), "step": 47}
    config = read_config_file(result.run_dir)
    assert (config.algo, config.algo_kwargs["finetuned_step"]) == ("iql", 47)
    assert config.algo_kwargs["offline_batch_ratio"] == 0.5


@pytest.mark.parametrize("crashes", [(60,), (75, 101)])
def test_finetuned_run_resumes_exactly(small_config: Config, crashes: tuple[int, ...]) -> None:
    source = source_run(small_config, "td3_bc", normalize_states=True)
    keys = (
        *(*GO_ON, "eval_episodes=1", "eval_interval=20"),
        *("env_kwargs.max_episode_steps=37", "offline_pretrain_updates=11"),
    )
    whole = finetune(source.run_dir, "Pendulum-v1", keys)
    before = set(source.run_dir.parent.glob("*"))
    with pytest.raises(CrashError):
        finetune(source.run_dir, "Pendulum-v1", keys, callbacks=[CrashAt(crashes[0])])
    (run_dir,) = set(source.run_dir.parent.glob("*")) - before
    for step in crashes[1:]:
        with pytest.raises(CrashError):
            resume(run_dir, callbacks=[CrashAt(step)])
    other = resume(run_dir)
    assert_same_run(whole, other)
    assert whole.metrics == other.metrics
    assert whole.metrics["updates/pretraining"] == 11


@pytest.mark.parametrize("place", ["amid", "after", "amid, then after"])
def test_finetuning_killed_in_its_first_evaluation_resumes_exactly(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The checkpoint is saved first; the evaluation is repeated and logged once."""
    source = source_run(small_config, "td3_bc")
    keys = (*GO_ON, "eval_episodes=1", "eval_interval=20", "env_kwargs.max_episode_steps=37")
    whole = finetune(source.run_dir, "Pendulum-v1", keys)
    there = set(source.run_dir.parent.glob("*"))

    class Die(Callback):
        def on_evaluation(self, session: Session, metrics: Mapping[str, float]) -> None:
            raise CrashError

    def crash(*_: Any) -> Any:
        raise CrashError

    with monkeypatch.context() as patch:
        if place != "after":
            patch.setattr(Evaluator, "evaluate", crash)
        with pytest.raises(CrashError):
            finetune(source.run_dir, "Pendulum-v1", keys, callbacks=[Die()])
    (run_dir,) = set(source.run_dir.parent.glob("*")) - there
    if place == "amid, then after":
        with pytest.raises(CrashError):
            resume(run_dir, callbacks=[Die()])
    resumed = resume(run_dir)
    assert_same_run(whole, resumed)
    assert whole.metrics == resumed.metrics
    assert whole.best_checkpoint_path is not None
    assert resumed.best_checkpoint_path is not None
    assert whole.best_checkpoint_path.name == resumed.best_checkpoint_path.name


def test_report_shows_return_before_lowest_and_after(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_run(small_config, "iql")
    returns = [-9.0, -5.0, -7.0, -6.0, -3.0]

    def evaluate(self: Any, policy: Any, episodes: int, *_: Any) -> EvaluationResult:
        return EvaluationResult(returns=(returns.pop(0),), lengths=(1,))

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    keys = (*GO_ON, "eval_episodes=1", "eval_interval=25")
    result = finetune(source.run_dir, "Pendulum-v1", keys)
    told = {key: result.metrics[f"return_{key}"] for key in ("before", "lowest", "after")}
    assert told == {"before": -9.0, "lowest": -7.0, "after": -3.0}
    rows = [r for r in read_metrics(result.run_dir) if "eval_return_mean" in r]
    places = [(row["step"], row["env_steps"]) for row in rows]
    assert places == [(47, 0), (50, 3), (75, 28), (100, 53), (107, 60)]
    assert json.loads(json.dumps(result.to_json()))["metrics"]["return_lowest"] == -7.0


@pytest.mark.parametrize(("pretraining", "last"), [(0, 100), (11, 100), (30, 120)])
def test_early_stopping_counts_environment_steps_of_this_run(
    pretraining: int, last: int, small_config: Config
) -> None:
    """The source has 47 steps, which `min_steps` does not count."""
    source = source_run(small_config, "iql")
    keys = ("early_stopping.target_value=-1e9", "early_stopping.min_steps=40", "eval_interval=20")
    more = (f"offline_pretrain_updates={pretraining}", "eval_episodes=1")
    result = finetune(source.run_dir, "Pendulum-v1", (*GO_ON, *keys, *more))
    assert result.stop_reason.startswith("early_stopping")
    assert result.metrics["step"] == last  # the first evaluation after 40 environment steps
    assert 40 <= result.metrics["env_steps"] < 60


def test_finetuning_explores_with_the_policy(
    small_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_run(small_config, "iql")
    learner = REGISTRY["iql"].learner_class()
    asked: list[bool] = []
    act = learner.act

    def counted(self: Any, obs: Any, *, deterministic: bool, **inputs: Any) -> Any:
        asked.append(deterministic)
        return act(self, obs, deterministic=deterministic, **inputs)

    monkeypatch.setattr(learner, "act", counted)
    finetune(source.run_dir, "Pendulum-v1", GO_ON)
    assert asked == [False] * 60


def test_data_can_be_dropped_or_replaced(small_config: Config, tmp_path: Path) -> None:
    source = source_run(small_config, "iql", normalize_states=True)
    dropped = finetune(source.run_dir, None, (*GO_ON, "offline_batch_ratio=0"))
    assert dropped.metrics["rows/offline"] == 0
    assert read_config_file(dropped.run_dir).algo_kwargs["dataset_path"] is None
    saved = tensors(source.checkpoint_path)
    file = tmp_path / "other.npz"
    write_arrays(record_random("Pendulum-v1", {}, 300, 7), file)
    look = Look()
    other = finetune(source.run_dir, None, GO_ON, dataset=str(file), callbacks=[look])
    assert read_config_file(other.run_dir).algo_kwargs["dataset_path"] == str(file)
    # Both runs keep the normalization of the source.
    for result in (dropped, other):
        assert torch.equal(tensors(result.checkpoint_path)["obs_shift"], saved["obs_shift"])
    normalized = (look.rows[:, :3] - saved["obs_shift"]) * saved["obs_scale"]
    assert all((normalized == row).all(1).any() for row in look.batch.obs)


@pytest.mark.parametrize("scaled", [False, True])
def test_changed_data_is_refused_unless_passed_explicitly(
    small_config: Config, tmp_path: Path, scaled: bool
) -> None:
    file = tmp_path / "mine.npz"
    write_arrays(record_random("Pendulum-v1", {}, 450, 7), file)
    source = source_run(small_config, "iql", dataset_path=str(file), return_scaling=scaled)
    moved = file.rename(tmp_path / "moved.npz")
    write_arrays(record_random("Pendulum-v1", {}, 450, 8), file)
    there = set(source.run_dir.parent.glob("*"))
    with pytest.raises(ConfigError, match=r"differs from the data that .* with --dataset FILE"):
        finetune(source.run_dir, None, GO_ON)
    if scaled:  # the factor of the original data is needed
        with pytest.raises(ConfigError, match=r"mine\.npz differs .* return_scaling depends on"):
            finetune(source.run_dir, None, GO_ON, dataset=file)
    assert set(source.run_dir.parent.glob("*")) == there
    again = finetune(source.run_dir, None, GO_ON, dataset=moved if scaled else file)
    assert again.stop_reason == "completed"


def test_return_scaling_becomes_a_common_factor(small_config: Config) -> None:
    source = source_run(small_config, "iql", return_scaling=True)
    look = Look()
    result = finetune(source.run_dir, None, GO_ON, callbacks=[look])
    kwargs = read_config_file(result.run_dir).algo_kwargs
    assert not kwargs["return_scaling"]
    task = check_config(read_config_file(source.run_dir))
    assert task.data is not None
    before = task.data.train.rows[:, 4]
    torch.testing.assert_close(look.rows[:450, 4], before)
    low = -16.3 * kwargs["reward_scale"]
    assert low <= float(look.rows[450:, 4].min()) < low / 50 < 0


def test_several_runs_in_one_plot(small_config: Config, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from rl_training.api.plots import evaluations, plot_runs

    config = small_config(algo="iql", total_timesteps=20, eval_episodes=1)
    source = train(config)
    keys = (*GO_ON, "eval_episodes=1", "eval_interval=40")
    result = finetune(source.run_dir, None, keys)
    steps, returns = evaluations(result.run_dir)
    assert steps == [0, 20, 60]  # evaluations of the source are not on this axis
    assert returns[-1] == result.metrics["return_after"]
    picture = tmp_path / "compared.png"
    plot_runs([source.run_dir, result.run_dir], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="is not a run"):
        plot_runs([tmp_path], picture)


def test_finetuned_mixed_run_is_plotted_separately(prior: Config) -> None:
    """Its metrics start with those of the source, which also count environment steps."""
    from rl_training.api.plots import evaluations

    source = train(prior(eval_episodes=1, algo_kwargs={"eval_interval": 20}))
    assert evaluations(source.run_dir)[0] == [10, 30, 50, 70, 90]
    keys = (*GO_ON, "eval_episodes=1", "eval_interval=20")
    result = finetune(source.run_dir, None, keys)
    steps, returns = evaluations(result.run_dir)
    assert steps == [0, 20, 40, 60]
    assert returns[0] == result.metrics["return_before"]


def test_branch_of_a_finetuned_run_is_not_evaluated_again(small_config: Config) -> None:
    source = source_run(small_config, "iql")
    keys = (*GO_ON, "eval_episodes=1", "eval_interval=40", "checkpoint_interval=40")
    result = finetune(source.run_dir, None, keys)
    older = list_steps(result.run_dir)[-2]  # of a step at which the run was evaluated
    evaluated = {r["step"] for r in read_metrics(result.run_dir) if "eval_return_mean" in r}
    assert older.name in {step_name(step) for step in evaluated}
    branch = resume(older)
    assert branch.run_dir != result.run_dir
    runs = result.run_dir, branch.run_dir
    one, two = ([r["step"] for r in read_metrics(run) if "eval_return_mean" in r] for run in runs)
    assert one == two
    assert branch.metrics["return_before"] == result.metrics["return_before"]


# --- Bad input ----------------------------------------------------------------


def refused(config: Mapping[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        train(dict(config))
    assert not Path(config["output_dir"]).exists()


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_ratio_outside_its_range(prior: Config, ratio: float) -> None:
    refused(prior(algo_kwargs={"offline_batch_ratio": ratio}), "offline_batch_ratio = ")


def test_missing_prior_data(prior: Config) -> None:
    config = prior()
    for key in ("dataset_kind", "dataset_path", "sampling"):
        del config["algo_kwargs"][key]
    refused(config, "rlpd learns from recorded data: set dataset_path")


def test_dataset_smaller_than_a_batch(prior: Config) -> None:
    refused(
        prior(algo_kwargs={"batch_size": 451}), r"batch_size = 451: .* has only 450 training rows"
    )


def test_dataset_of_another_environment(prior: Config, tmp_path: Path) -> None:
    file = tmp_path / "car.npz"
    write_arrays(record_random("MountainCarContinuous-v0", {}, 50, 0), file)
    refused(prior(algo_kwargs={"dataset_path": str(file)}), "use data from the same environment")


def test_different_reward_transforms_are_refused(prior: Config) -> None:
    refused(
        prior(algo_kwargs={"return_scaling": True}), "return_scaling applies to recorded rewards"
    )
    config = prior(algo_kwargs={"reward_scale": 2.0})
    config["env_kwargs"] = {"wrappers": {"reward": {"scale": 3.0}}}
    refused(config, "differ")


def test_reward_wrappers_apply_to_recorded_rewards(prior: Config) -> None:
    plain, keyed = prior(), prior(algo_kwargs={"reward_scale": 0.1})
    wrapped = prior(env_kwargs={"wrappers": {"reward": {"scale": 0.1}}})
    rewards = []
    for config in (plain, keyed, wrapped):
        data = check_config(make_config(config)).data
        assert data is not None
        rewards.append(data.train.column("rewards"))
    assert np.array_equal(rewards[1], rewards[2])
    np.testing.assert_allclose(rewards[2], 0.1 * rewards[0], rtol=1e-6)


def test_train_refuses_finetuning_keys(small_config: Config) -> None:
    config = small_config(algo="iql")
    config["algo_kwargs"] |= {"finetuned_step": 3}
    refused(config, "use rl-training finetune")


@pytest.mark.parametrize(
    ("algo", "match"),
    [
        ("her", "her relabels goals"),
        ("bc", "bc does not learn from rewards"),
    ],
)
def test_learners_that_cannot_be_finetuned(small_config: Config, algo: str, match: str) -> None:
    source = source_run(small_config, algo)
    with pytest.raises(ConfigError, match=match):
        finetune(source.run_dir)


def test_settings_that_contradict_the_checkpoint(small_config: Config, tmp_path: Path) -> None:
    source = source_run(small_config, "iql")
    there = set(source.run_dir.parent.glob("*"))
    file = tmp_path / "car.npz"
    write_arrays(record_random("MountainCarContinuous-v0", {}, 50, 0), file)
    words = (
        r"expects 3 observation values and 1 action value in \[-2, 2\], but "
        r"MountainCarContinuous-v0 has 2 observation values and 1 action value in \[-1, 1\]"
    )
    with pytest.raises(ConfigError, match=words):
        finetune(source.run_dir, "MountainCarContinuous-v0", ("offline_batch_ratio=0",))
    with pytest.raises(ConfigError, match="use data from the same environment"):
        finetune(source.run_dir, "Pendulum-v1", dataset=str(file))
    with pytest.raises(ConfigError, match=r"does not match this learner: .*: hidden_sizes differs"):
        finetune(source.run_dir, "Pendulum-v1", ("hidden_sizes=[8, 8]",))
    with pytest.raises(ConfigError, match="finetuned_step is 47, the step of the checkpoint"):
        finetune(source.run_dir, "Pendulum-v1", ("finetuned_step=3",))
    with pytest.raises(ConfigError, match=r"offline_batch_ratio = 0.5 requires a dataset"):
        finetune(
            source.run_dir,
            None,
            ("dataset_kind=null", "dataset_path=null", "offline_batch_ratio=0.5"),
        )
    with pytest.raises(ConfigError, match="offline_batch_ratio = 2"):
        finetune(source.run_dir, None, ("offline_batch_ratio=2",))
    with pytest.raises(ConfigError, match="Unknown key"):
        finetune(source.run_dir, None, ("offline_ratio=0.5",))
    assert set(source.run_dir.parent.glob("*")) == there


@pytest.mark.parametrize(("place", "path"), [("", "."), ("checkpoints", ".."), ("..", None)])
def test_finetuned_run_is_created_next_to_its_source(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, place: str, path: str | None
) -> None:
    """Even if the source is ``.`` or ``..``."""
    source = source_run(small_config, "iql").run_dir
    monkeypatch.chdir(source / place)
    result = finetune(path or source.name, None, GO_ON)
    assert result.run_dir.resolve() == source.with_name(f"{source.name}_finetuned")
    assert (path is None) == (read_config_file(result.run_dir).output_dir == ".")


def test_run_without_an_environment_can_be_given_one(small_config: Config) -> None:
    source = train(
        small_config(
            algo="iql",
            env_id=None,
            total_timesteps=20,
            algo_kwargs={"action_low": -2.0, "action_high": 2.0},
        )
    )
    with pytest.raises(ConfigError, match="trained without an environment: set env_id"):
        finetune(source.run_dir)
    result = finetune(source.run_dir, "Pendulum-v1", (*GO_ON, "eval_episodes=1"))
    assert result.metrics["env_steps"] == 60
    assert result.metrics["return_lowest"] is not None
    spec = open_checkpoint(result.checkpoint_path).manifest["env_spec"]
    assert EnvSpec.from_dict(spec).action_high == (2.0,)


class Opaque(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose state cannot be saved."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.handle = iter(range(9))


def opaque(**kwargs: Any) -> gym.Env[Any, Any]:
    return Opaque(gym.make("Pendulum-v1", **kwargs).unwrapped)


@pytest.mark.parametrize("capturable", [True, False])
def test_finetuning_killed_at_its_start_resumes_exactly(
    small_config: Config, monkeypatch: pytest.MonkeyPatch, capturable: bool
) -> None:
    """Its folder appears with a checkpoint, and the first episode is the same."""
    env_id = "Pendulum-v1" if capturable else "Opaque-v0"
    spec = gym.envs.registration.EnvSpec("Opaque-v0", opaque, max_episode_steps=200)
    monkeypatch.setitem(gym.registry, "Opaque-v0", spec)
    source = source_run(small_config, "iql")
    keys = (*GO_ON, "eval_episodes=1")
    whole = finetune(source.run_dir, env_id, keys)
    there = set(source.run_dir.parent.iterdir())

    class Die(Callback):
        def on_start(self, session: Session) -> None:
            raise CrashError

    with pytest.raises(CrashError):
        finetune(source.run_dir, env_id, keys, callbacks=[Die()])
    (run_dir,) = set(source.run_dir.parent.iterdir()) - there
    first = open_checkpoint(list_steps(run_dir)[-1])
    assert first.step == source.metrics["step"]
    assert first.manifest["restores"]["environments"].startswith("exactly") == capturable
    warnings: list[str] = []
    resumed = resume(run_dir, on_warning=warnings.append)
    assert_same_run(whole, resumed)
    assert warnings == []


@pytest.mark.parametrize("kind", ["finetuned", "branched"])
def test_old_run_without_a_checkpoint_is_not_restarted(small_config: Config, kind: str) -> None:
    """It should have started from the state of another run."""
    source = source_run(small_config, "iql")
    if kind == "finetuned":
        run_dir = finetune(source.run_dir, None, GO_ON).run_dir
    else:
        run_dir = resume(list_steps(source.run_dir)[0], ["total_timesteps=60"]).run_dir
    assert run_dir != source.run_dir
    for folder in ("checkpoints", "replay"):
        shutil.rmtree(run_dir / folder)
    with pytest.raises(
        CheckpointError, match=r"ended before its first checkpoint: (run finetune again|resume the)"
    ):
        resume(run_dir)


def test_finetuning_config_has_the_keys_of_the_learner() -> None:
    config = make_config(
        {
            "algo": "awac",
            "env_id": "Pendulum-v1",
            "total_timesteps": 9,
            "algo_kwargs": {"finetuned_step": 5, "offline_pretrain_updates": 4},
        }
    )
    assert (config.mode, config.online_from, config.last_step) == ("offline_to_online", 9, 18)
    kwargs = config.resolved().algo_kwargs
    assert kwargs["hidden_sizes"] == [256] * 4  # the default of AWAC
    assert (kwargs["learning_starts"], kwargs["random_play"]) == (5_000, False)
    assert kwargs["schedule_horizon"] == 13


@pytest.mark.parametrize(("steps", "expected"), [(None, 5_000), (60, 12), (40_000, 5_000)])
def test_finetuning_collects_before_it_learns(
    small_config: Config, steps: int | None, expected: int
) -> None:
    source = source_run(small_config, "awac")
    checkpoint = SavedRun.load(source.checkpoint_path)
    asked = [] if steps is None else [f"total_timesteps={steps}"]
    config = make_finetuning_config(checkpoint, None, asked)
    assert config.algo_kwargs["learning_starts"] == expected
    config = make_finetuning_config(checkpoint, None, [*asked, "learning_starts=7"])
    assert config.algo_kwargs["learning_starts"] == 7
