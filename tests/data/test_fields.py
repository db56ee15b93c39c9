"""Declared fields and n-step rewards against a reference that iterates over the episodes."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from rl_training.data import EpochSampler, MixedSampler, ReplayBuffer, TransitionDataset
from rl_training.data.rows import PackedRows
from rl_training.data.samplers import NormalizedSampler
from rl_training.errors import ConfigError
from rl_training.rewards import RewardTransformConfig
from rl_training.types import FIELD_NAMES, Batch, Sampler

GAMMA = 0.9
FIELDS = ("next_actions", "next_action_mask", "truncations", "indices", "weights", "discounts")


@dataclass
class Row:
    """One transition of one environment."""

    obs: float
    action: float
    reward: float
    next_obs: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def random_rows(count: int, seed: int, end: float) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        obs, action, reward, next_obs = rng.normal(size=4).astype(np.float32).tolist()
        terminated = bool(rng.random() < end / 2)
        truncated = not terminated and bool(rng.random() < end / 2)
        rows.append(Row(obs, action, reward, next_obs, terminated, truncated))
    return rows


def expected(episode: list[Row], n_step: int) -> dict[str, Any]:
    """Return the expected batch row for the first of ``episode``, the rows from it on."""
    taken = 0
    reward = 0.0
    for row in episode[:n_step]:
        reward += GAMMA**taken * row.reward
        taken += 1
        if row.ended:
            break
    last = episode[taken - 1]
    follows = not last.ended and len(episode) > taken
    return {
        "obs": episode[0].obs,
        "actions": episode[0].action,
        "rewards": reward,
        "next_obs": last.next_obs,
        "terminations": float(last.terminated),
        "truncations": float(last.truncated),
        "discounts": GAMMA**taken,
        "next_action_mask": float(follows),
        "next_actions": episode[taken].action if follows else 0.0,
        "weights": 1.0,
    }


def assert_rows(batch: Batch, wanted: list[dict[str, Any]]) -> None:
    assert batch.next_actions.shape == batch.actions.shape
    for name in wanted[0]:
        values = getattr(batch, name).flatten().numpy()
        np.testing.assert_allclose(values, [row[name] for row in wanted], rtol=2e-6, atol=1e-6)


def fill(buffer: ReplayBuffer, rows: list[Row]) -> None:
    """Add rows in order, one of each environment at a time."""
    for start in range(0, len(rows), buffer.num_envs):
        part = rows[start : start + buffer.num_envs]
        values = np.array([[r.obs, r.action, r.reward, r.next_obs] for r in part], np.float32)
        flags = np.array([[r.terminated, r.truncated] for r in part])
        obs, actions, rewards, next_obs = np.split(values, 4, axis=1)
        buffer.add(obs, actions, rewards[:, 0], next_obs, flags[:, 0], flags[:, 1])


def assert_replay(buffer: ReplayBuffer, rows: list[Row], n_step: int) -> None:
    """Assert that a batch of every stored row of ``buffer`` equals the reference."""
    stored = range(len(rows) - len(buffer), len(rows))
    batch = buffer.batch(torch.tensor([row % buffer.capacity for row in stored]))
    wanted = [expected(rows[first :: buffer.num_envs], n_step) for first in stored]
    assert_rows(batch, wanted)
    assert batch.indices.tolist() == [row % buffer.capacity for row in stored]


@settings(deadline=None, max_examples=80)
@given(
    steps=st.integers(1, 40),
    num_envs=st.integers(1, 4),
    capacity=st.integers(4, 60),
    n_step=st.integers(1, 6),
    end=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_replay_fields_follow_each_environment(
    steps: int, num_envs: int, capacity: int, n_step: int, end: float, seed: int
) -> None:
    """At the ring buffer's boundary, both kinds of episode ends, and the newest row."""
    rows = random_rows(steps * num_envs, seed, end)
    buffer = ReplayBuffer(capacity, 1, 1, num_envs=num_envs)
    buffer.rows.fill_(float("nan"))
    buffer.supply(FIELDS, gamma=GAMMA, n_step=n_step)
    half = steps // 2 * num_envs
    fill(buffer, rows[:half])
    if half:
        assert_replay(buffer, rows[:half], n_step)
    fill(buffer, rows[half:])
    assert_replay(buffer, rows, n_step)
    restored = ReplayBuffer(capacity, 1, 1, num_envs=num_envs)
    restored.supply(FIELDS, gamma=GAMMA, n_step=n_step)
    restored.load_state_dict(buffer.state_dict())
    restored.load_segment(0, buffer.segment(0).copy())
    assert_replay(restored, rows, n_step)


@pytest.mark.parametrize("n_step", [1, 3])
def test_restart_ends_the_windows_of_every_environment(n_step: int) -> None:
    """As after a resume with new episodes, because the old ones could not be restored."""
    rows = random_rows(12, 0, 0.0)
    buffer = ReplayBuffer(14, 1, 1, num_envs=2)
    buffer.supply(FIELDS, gamma=GAMMA, n_step=n_step)
    fill(buffer, rows)
    buffer.cut_episodes(2)
    more = random_rows(8, 1, 0.0)
    fill(buffer, more)
    rows[-1].truncated = rows[-2].truncated = True
    assert_replay(buffer, rows + more, n_step)


def recorded(rows: list[Row], **columns: Any) -> TransitionDataset:
    return TransitionDataset.from_dict(
        {
            "observations": [[row.obs] for row in rows],
            "actions": [[row.action] for row in rows],
            "rewards": [row.reward for row in rows],
            "next_observations": [[row.next_obs] for row in rows],
            "terminations": [row.terminated for row in rows],
            "truncations": [row.truncated for row in rows],
            **columns,
        },
        columns=tuple(columns),
    )


def assert_dataset(data: TransitionDataset, rows: list[Row], n_step: int) -> None:
    batch = data.batch(torch.arange(len(rows)))
    assert_rows(batch, [expected(rows[first:], n_step) for first in range(len(rows))])
    onward = []
    for first in range(len(rows)):
        total, factor = 0.0, 1.0
        for row in rows[first:]:
            total, factor = total + factor * row.reward, factor * GAMMA
            if row.ended:
                break
        onward.append(total)
    np.testing.assert_allclose(batch.returns_to_go.numpy(), onward, rtol=2e-6, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(2, 60),
    n_step=st.integers(1, 6),
    end=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    changes=st.booleans(),
)
def test_dataset_fields_follow_episodes(
    count: int, n_step: int, end: float, seed: int, changes: bool
) -> None:
    """Also after episodes were held out or rewards transformed, before or after `supply`."""
    rows = random_rows(count, seed, end)
    data = recorded(rows)
    fields = (*FIELDS, "returns_to_go")
    data.supply(fields, gamma=GAMMA, n_step=n_step)
    if not changes:
        assert_dataset(data, rows, n_step)
        return
    data = data.with_reward_transform(RewardTransformConfig(scale=2.0, shift=-1.0))
    for row in rows:
        row.reward = 2 * row.reward - 1
    held_out = data.hold_out(0.4, seed)
    for part in (data, held_out):
        values = set(part.column("observations")[:, 0].tolist())
        kept = [index for index, row in enumerate(rows) if row.obs in values]
        # If rows are missing, the reference treats the next rows as the same episode.
        gaps = [one for one, other in itertools.pairwise(kept) if other != one + 1]
        assert all(rows[index].ended for index in gaps)
        assert_dataset(part, [rows[index] for index in kept], n_step)


def test_gathers_have_static_shapes_and_never_wait_for_the_host() -> None:
    """Graph capture requires this; on meta tensors, reading a value would raise."""
    buffer = ReplayBuffer(30, 3, 2, num_envs=2)
    buffer.supply(FIELDS, gamma=GAMMA, n_step=3)
    fields = buffer._fields
    assert fields is not None
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows = PackedRows(torch.empty(30, buffer.layout.width))
        batch = fields.batch(rows, torch.arange(8))
    assert all(len(tensor) == 8 for tensor in batch.tensors())


def test_every_sampler_supplies_the_fields_of_its_sources() -> None:
    rows = random_rows(40, 0, 0.2)
    buffer = ReplayBuffer(30, 1, 1, num_envs=2)
    fill(buffer, rows)
    shift = torch.tensor([3.0]), torch.tensor([0.5])
    offline = NormalizedSampler(EpochSampler(recorded(rows)), *shift)
    mixed = MixedSampler(offline, NormalizedSampler(buffer, *shift), 0.5, pretraining=True)
    mixed.supply(FIELDS, gamma=GAMMA, n_step=2)
    generator = torch.Generator().manual_seed(0)
    pretraining = mixed.sample(8, generator)
    mixed.pretraining = False
    mixed.prepare(8, generator, 2)
    batch = mixed.gather(8, generator, 2)
    assert [x.stride() for x in pretraining.tensors()] == [x.stride() for x in batch.tensors()]
    for update in range(2):
        for place in range(8):
            index = batch.indices[8 * update + place]
            source: Any = recorded(rows) if place < 4 else buffer
            source.supply(FIELDS, gamma=GAMMA, n_step=2)
            wanted = source.batch(index[None])
            torch.testing.assert_close(batch.obs[8 * update + place], (wanted.obs[0] - 3) * 0.5)
            for name in ("next_actions", "next_action_mask", "discounts"):
                found = batch.column(name)[8 * update + place]
                torch.testing.assert_close(found, wanted.column(name)[0])


def test_columns_of_a_dataset_are_read_by_name() -> None:
    rows = random_rows(20, 0, 0.2)
    flat, wide = np.arange(20.0), np.arange(60.0).reshape(20, 3)
    data = recorded(rows, difficulty=flat, embedding=wide)
    data.supply(("embedding", "difficulty"))
    batch = data.batch(torch.tensor([3, 17]))
    assert batch.column("difficulty").tolist() == [3.0, 17.0]
    assert batch.column("embedding").tolist() == wide[[3, 17]].tolist()
    assert list(batch.extra) == ["embedding", "difficulty"]
    data.supply(())
    assert not data.batch(torch.tensor([3])).extra
    with pytest.raises(ConfigError, match=r"'embeding', which the data does not .* 'embedding'"):
        data.supply(("embeding",))


@pytest.mark.parametrize(
    ("column", "name", "message"),
    [
        ([0.0, np.nan, 0.0], "level", "level has values that are not finite in row 1"),
        ([0.0, 1.0], "level", "'level' has 2 rows, but 'observations' has 3"),
        (["a", "b", "c"], "level", "'level' has the type <U1, but should contain numbers"),
        (np.zeros((3, 2, 2)), "level", "'level' has shape"),
        (np.zeros(3), "levle", "has no column 'levle', .* did you mean 'level'"),
        (np.zeros(3), "rewards", "declares the column 'rewards', but it is already part"),
    ],
)
def test_unusable_column_gets_a_clear_error(column: Any, name: str, message: str) -> None:
    arrays = {"observations": np.zeros((3, 1)), "actions": np.zeros((3, 1)), "level": column}
    with pytest.raises(ConfigError, match=message):
        TransitionDataset.from_dict(arrays | {"rewards": np.zeros(3)}, columns=(name,))


def test_replay_rejects_fields_it_cannot_supply() -> None:
    buffer = ReplayBuffer(10, 1, 1)
    with pytest.raises(ConfigError, match="'returns_to_go', which experience from an environment"):
        buffer.supply(("returns_to_go",))
    with pytest.raises(ConfigError, match="did you mean 'truncations'"):
        buffer.supply(("truncation",))
    with pytest.raises(ValueError, match="3 transitions, but the number should be a multiple"):
        fill_three(ReplayBuffer(10, 1, 1, num_envs=2))


def fill_three(buffer: ReplayBuffer) -> None:
    one, flag = np.zeros((3, 1), dtype=np.float32), np.zeros(3, dtype=bool)
    buffer.add(one, one, one[:, 0], one, flag, flag)


def test_custom_sampler_has_no_fields() -> None:
    class Mine(Sampler):
        def __len__(self) -> int:
            return 1

        def prepare(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> None:
            raise AssertionError

        def gather(self, batch_size: int, generator: torch.Generator, updates: int = 1) -> Batch:
            raise AssertionError

    Mine().supply(())
    with pytest.raises(ConfigError, match="a Mine does not have"):
        Mine().supply(("indices",))
    with pytest.raises(ConfigError, match="n_step = 2: a Mine only supports n_step = 1"):
        Mine().supply((), n_step=2)


def test_missing_field_error_explains_how_to_declare_it() -> None:
    zeros = torch.zeros(2)
    batch = Batch(zeros[:, None], zeros[:, None], zeros, zeros[:, None], zeros)
    for name in FIELD_NAMES:
        with pytest.raises(ConfigError, match=f"no field '{name}'\\. .* return \\('{name}',\\)"):
            getattr(batch, name)
    full = batch._replace(extra={"indices": zeros, "level": zeros + 1})
    doubled = full.map(lambda x: x + 1)
    assert list(doubled.extra) == ["indices", "level"]
    assert doubled.column("level").tolist() == [2.0, 2.0]
    assert len(list(doubled.tensors())) == 7
    for copied in (copy.deepcopy(batch), pickle.loads(pickle.dumps(full))):
        assert torch.equal(copied.obs, batch.obs)
