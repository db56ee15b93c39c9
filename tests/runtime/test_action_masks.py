"""Action masks in a run: collection, replay, evaluation, prediction and resume.

The environment raises an error for an illegal action, and each observation contains its mask.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import (
    DQN,
    evaluate_checkpoint,
    finetune,
    predict_checkpoint,
    register_algorithm,
    resume,
    train,
)
from rl_training.algorithms import registry
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.boundary import json_codec
from rl_training.data import PrioritizedReplay, ReplayBuffer, load_transition_dataset
from rl_training.data.dataset_writers import write_arrays
from rl_training.envs import EnvConfig, examine_env, make_training_envs
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment.saved_run import SavedRun
from rl_training.runtime.acting import Explorer
from rl_training.runtime.collector import Collector
from rl_training.runtime.recording import record_random
from rl_training.types import MASK_FIELDS
from tests import masked_envs
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.hostile.forging import change_state
from tests.masked_envs import ACTIONS, MASK, MASKED, START
from tests.runtime.test_exact_resume import crash_and_resume

masked_envs.register()
DQN_KEYS = {"train_frequency": 1, "epsilon_decay_steps": 100, "learning_starts": 30}


def collect(
    steps: int, *, num_envs: int = 1, kind: str = "sync", capacity: int = 1000, **options: Any
) -> ReplayBuffer:
    """Collect with random actions, then with the policy and ε = ½."""
    config = EnvConfig(vectorization=kind, **options)
    spec, _ = examine_env(MASKED, config)
    learner = DQNAlgorithm.build(spec, DQNConfig(hidden_sizes=(8,)))
    learner.epsilon.fill_(0.5)
    buffer = ReplayBuffer(
        capacity, spec.obs_dim, spec.action_width, num_envs, mask_width=spec.mask_width
    )
    envs = make_training_envs(MASKED, config, num_envs, action_masks=True)
    explorer = Explorer(learner, num_envs, torch.Generator().manual_seed(0))
    collector = Collector(envs, explorer, buffer, spec, seed=0)
    try:
        collector.reset()
        for step in range(steps):
            collector.request_actions(random=step < steps // 2)
            collector.step(step * num_envs)
    finally:
        collector.close()
    return buffer


def assert_masks_match(batch: Any) -> None:
    """Compare the masks of a batch with those inside its observations."""
    chosen = batch.legal_actions.gather(-1, batch.actions.long())
    assert (chosen == 1).all()
    assert torch.equal(batch.legal_actions, batch.obs[:, MASK])
    ended = batch.terminations.unsqueeze(-1) > 0
    expected = torch.where(ended, torch.ones_like(batch.next_obs[:, MASK]), batch.next_obs[:, MASK])
    assert torch.equal(batch.next_legal_actions, expected)


@pytest.mark.parametrize(("num_envs", "kind"), [(1, "sync"), (3, "sync"), (2, "async")])
@pytest.mark.parametrize("n_step", [1, 4])
def test_stored_masks_are_those_of_the_observations(num_envs: int, kind: str, n_step: int) -> None:
    """Episodes terminate and reach the time limit; the ring is written more than twice."""
    buffer = collect(90, num_envs=num_envs, kind=kind, capacity=40 * num_envs)
    assert buffer.total > 2 * buffer.capacity
    buffer.supply((*MASK_FIELDS, "truncations"), gamma=0.9, n_step=n_step)
    batch = buffer.batch(torch.arange(buffer.capacity))
    assert_masks_match(batch)
    assert batch.terminations.sum() > 0
    cut = (batch.truncations > 0) & (batch.terminations == 0)
    assert cut.sum() > 0
    assert (batch.next_legal_actions[cut].sum(-1) < ACTIONS).any()  # not replaced by ones


def test_reward_wrapper_keeps_the_last_mask() -> None:
    wrappers = {"reward": {"scale": 0.5}}
    buffer = collect(60, wrappers=wrappers)
    buffer.supply(MASK_FIELDS)
    assert_masks_match(buffer.batch(torch.arange(60)))


def test_every_legal_action_is_explored() -> None:
    buffer = collect(200, ends_at=10**6)
    buffer.supply(MASK_FIELDS)
    batch = buffer.batch(torch.arange(200))
    assert set(batch.actions.flatten().tolist()) == set(range(ACTIONS))


def test_replay_without_masks_does_not_supply_them() -> None:
    buffer = ReplayBuffer(10, 3, 1)
    assert buffer.layout.width == 10
    with pytest.raises(ConfigError, match="'legal_actions', which an environment without action"):
        buffer.supply(("legal_actions",))


def test_one_action_keeps_its_axis() -> None:
    buffer = ReplayBuffer(10, 3, 1, mask_width=1)
    one, ones = np.zeros(1), np.ones((1, 1), bool)
    buffer.add(
        np.zeros((1, 3)), np.zeros((1, 1)), one, np.zeros((1, 3)), one > 0, one > 0, ones, ones
    )
    buffer.supply(MASK_FIELDS)
    assert buffer.batch(torch.zeros(1, dtype=torch.long)).next_legal_actions.shape == (1, 1)


def test_memory_estimate_includes_masks() -> None:
    spec, _ = examine_env(MASKED, EnvConfig())
    rows = ReplayBuffer(7, spec.obs_dim, 1, mask_width=ACTIONS).rows
    assert ReplayBuffer.num_bytes(7, spec) == rows.nbytes
    assert PrioritizedReplay.num_bytes(7, spec) == rows.nbytes + 28


def masked_config(small_config: Any, **changes: Any) -> Any:
    keys = changes.pop("algo_kwargs", {})
    config = small_config(algo="dqn", env_id=MASKED, eval_episodes=2, **changes)
    config["algo_kwargs"] |= DQN_KEYS | {"eval_interval": 50} | keys
    return config


@pytest.mark.parametrize(
    ("num_envs", "kind", "keys"),
    [
        (1, "sync", {}),
        (3, "sync", {"buffer_capacity": 48, "n_step": 3}),
        (2, "async", {"double": True, "replay": "prioritized"}),
        (1, "sync", {"normalize_observations": True, "engine": "compiled"}),
    ],
)
@pytest.mark.usefixtures("without_compiler")
def test_resume_is_exact(small_config: Any, num_envs: int, kind: str, keys: Any) -> None:
    config = masked_config(small_config, num_envs=num_envs, algo_kwargs=keys)
    config["env_kwargs"] = {"vectorization": kind}
    config |= {"total_timesteps": 120}
    assert_same_run(train(config), crash_and_resume(config, 57, 99))


def test_run_without_masks_takes_illegal_actions(small_config: Any) -> None:
    """This shows that the other tests would notice an illegal action."""
    config = masked_config(small_config)
    config["env_kwargs"] = {"action_masks": False}
    with pytest.raises(EnvError, match="is illegal, the mask is"):
        train(config)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys: dict[str, Any] = {**DQN_KEYS, "hidden_sizes": (16,), "num_threads": 1}
    keys |= {"output_dir": str(tmp_path_factory.mktemp("runs")), "eval_episodes": 1}
    model = DQN(MASKED, **keys)
    model.learn(60)
    assert model.run_dir is not None
    return model.run_dir


def test_evaluation_uses_the_masks(trained: Path) -> None:
    assert SavedRun.load(trained).spec.action_masks
    assert evaluate_checkpoint(trained, episodes=5)["eval_episodes"] == 5
    with pytest.raises(EnvError, match="returns an info without 'action_mask'"):
        evaluate_checkpoint(trained, env_kwargs={"masked": False})


def test_prediction_uses_the_mask(trained: Path) -> None:
    obs = np.random.default_rng(0).normal(size=(50, 2 + ACTIONS)).astype(np.float32)
    legal = np.random.default_rng(1).integers(0, 2, (50, ACTIONS))
    legal[np.arange(50), np.arange(50) % ACTIONS] = 1
    free = predict_checkpoint(trained, obs)
    masked = predict_checkpoint(trained, obs, action_mask=legal)
    rows = np.arange(50)
    assert (legal[rows, masked - START] == 1).all()
    kept = legal[rows, free - START] == 1
    assert 0 < kept.sum() < 50
    assert (masked[kept] == free[kept]).all()
    model = DQN.load(trained)
    assert (model.predict(obs, action_mask=legal.astype(bool)) == masked).all()
    assert model.predict(obs[0], action_mask=legal[0].tolist()) == masked[0]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            np.ones(3, int),
            r"action_mask has shape \(3,\) and type int64, but booleans or integers ",
        ),
        (np.ones((2, ACTIONS), int), r"of shape \(4,\) are expected, one value for each action"),
        (np.ones(ACTIONS), "and type float64, but booleans or integers"),
        (np.full(ACTIONS, 2), "action_mask has values other than 0 and 1"),
        (np.zeros(ACTIONS, bool), "action_mask has no legal action for one of the observations"),
    ],
)
def test_wrong_mask_in_a_prediction(trained: Path, mask: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict_checkpoint(trained, np.zeros(2 + ACTIONS), action_mask=mask)


def test_continuous_policy_refuses_a_mask(small_config: Any) -> None:
    run = train(small_config(total_timesteps=40)).run_dir
    with pytest.raises(ConfigError, match="sac does not support action masks here: leave out"):
        predict_checkpoint(run, np.zeros(3), action_mask=[1])


def test_old_run_continues_without_masks(small_config: Any, monkeypatch: Any) -> None:
    """A run that did not know the masks does not use them after a resume either."""
    config = masked_config(small_config)
    config["env_kwargs"] = {"strict": False}
    with monkeypatch.context() as before:
        before.setattr("rl_training.envs.checking.ACTION_MASK", "unknown")
        whole = train(config)
        with pytest.raises(CrashError):
            train(config, callbacks=[CrashAt(57)])
    (run_dir,) = set(Path(config["output_dir"]).glob("*")) - {whole.run_dir}
    assert_same_run(whole, resume(run_dir))
    assert not SavedRun.load(run_dir).spec.action_masks
    assert train(config).run_dir != whole.run_dir  # a new run uses them


def test_masks_that_disappear_are_noticed(small_config: Any, monkeypatch: Any) -> None:
    config = masked_config(small_config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(57)])
    monkeypatch.setattr("rl_training.envs.checking.ACTION_MASK", "unknown")
    (run_dir,) = Path(config["output_dir"]).glob("*")
    with pytest.raises(CheckpointError, match="was trained with action masks, but its environment"):
        resume(run_dir)


@pytest.mark.parametrize("change", ["shape", "empty", "missing"])
def test_damaged_masks_in_a_checkpoint(trained: Path, tmp_path: Path, change: str) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(trained, run_dir)

    def damage(state: Any) -> Any:
        collector = state["collector"]
        legal = json_codec.decode(collector.pop("legal_actions"))
        if change != "missing":
            wrong = legal[:, 1:] if change == "shape" else legal & False
            collector["legal_actions"] = json_codec.encode(wrong)
        return state

    change_state(run_dir, damage)
    with pytest.raises(CheckpointError, match="legal_actions"):
        resume(run_dir, ["total_timesteps=90"])


# --- Other learners -----------------------------------------------------------

OFFLINE = ("bc", "iql", "cql", "awac")


@pytest.fixture(scope="module")
def recorded_masks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("masks") / "masked.npz"
    write_arrays(record_random(MASKED, {}, 200, 0, action_masks=True), file)
    return file


def offline_config(small_config: Any, algo: str, file: Path) -> dict[str, Any]:
    """Return the config of a run whose evaluation ends with an error for an illegal action."""
    config: dict[str, Any] = small_config(algo=algo, env_id=MASKED, kind="discrete")
    config |= {"eval_episodes": 3}
    config["algo_kwargs"] |= {"dataset_path": str(file), "eval_interval": 60}
    return config


@pytest.mark.parametrize("algo", OFFLINE)
def test_offline_learners_use_recorded_masks(
    small_config: Any, recorded_masks: Path, algo: str
) -> None:
    config = offline_config(small_config, algo, recorded_masks)
    whole = train(config)
    assert SavedRun.load(whole.run_dir).spec.action_masks
    assert_same_run(whole, crash_and_resume(config, 57))
    if algo != "bc":
        keys = ("total_timesteps=40", "learning_starts=10", "env_kwargs.strict=true")
        assert finetune(whole.run_dir, None, keys).metrics["env_steps"] == 40


def test_batches_contain_recorded_masks(recorded_masks: Path) -> None:
    spec, _ = examine_env(MASKED, EnvConfig())
    keys = {"dataset_kind": "npz", "dataset_path": str(recorded_masks)}
    data = load_transition_dataset(keys, spec=spec, columns=spec.mask_fields)
    data.supply(MASK_FIELDS)
    assert_masks_match(data.sample(500, torch.Generator().manual_seed(0)))


def test_sac_takes_legal_actions(small_config: Any) -> None:
    config = small_config(algo="sac", env_id=MASKED, kind="discrete", eval_episodes=3)
    config["algo_kwargs"] |= {"eval_interval": 60}
    assert_same_run(train(config), crash_and_resume(config, 57))


def test_recorded_masks_that_cannot_be_used(
    small_config: Any, recorded_masks: Path, tmp_path: Path
) -> None:
    arrays = dict(np.load(recorded_masks))
    start = {key: values for key, values in arrays.items() if "mask" not in key}
    masks, actions = arrays["action_masks"], arrays["actions"] - START
    illegal, wide = masks.copy(), np.tile(masks, 2)
    illegal[[7, 9], actions[[7, 9]]] = False
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, r"no column 'action_masks'.* env_kwargs\.action_masks=false"),
        (arrays | {"action_masks": illegal}, "row 7 is illegal by its action mask"),
        (arrays | {"action_masks": wide}, "should have 4 values, .* masks of 8"),
        (arrays | {"next_action_masks": 2 * masks}, "each 0 or 1, but .* from 0 to 2"),
    ]
    for number, (changes, match) in enumerate(cases):
        file = tmp_path / f"{number}.npz"
        write_arrays(start | changes, file)
        with pytest.raises(ConfigError, match=match):
            train(offline_config(small_config, "iql", file))
    config = offline_config(small_config, "iql", tmp_path / "0.npz")
    config["env_kwargs"] = {"action_masks": False, "strict": False}
    assert not SavedRun.load(train(config).run_dir).spec.action_masks


def test_learner_without_masks_ignores_them_with_a_note(
    small_config: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(DQNAlgorithm):
        name = "plain_dqn"
        mask_fields = ()

    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    register_algorithm(Plain)
    config = masked_config(small_config)
    config |= {"algo": "plain_dqn", "env_kwargs": {"strict": False}}
    result = train(config)
    assert not SavedRun.load(result.run_dir).spec.action_masks
    assert "provides action masks, but plain_dqn does not support them" in capsys.readouterr().err
