"""Mixed batches: exact shares of two sources in every batch, counted and saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.algorithms.rlpd import RLPDAlgorithm, RLPDConfig
from rl_training.data import EpochSampler, MixedSampler, ReplayBuffer, TransitionDataset
from rl_training.data.samplers import NormalizedSampler, offline_share
from rl_training.errors import ConfigError
from rl_training.runtime import engine
from rl_training.runtime.engine import Engine
from rl_training.runtime.engine_choice import EngineMode
from rl_training.types import EnvSpec, Sampler

OFFLINE, ONLINE = 1.0, -1.0
"""Rewards that identify the source of a row."""


def dataset(rows: int = 50) -> TransitionDataset:
    rng = np.random.default_rng(0)
    return TransitionDataset.from_dict(
        {
            "observations": rng.normal(size=(rows, 3)),
            "actions": rng.uniform(-1, 1, size=(rows, 2)),
            "rewards": np.full(rows, OFFLINE),
            "next_observations": rng.normal(size=(rows, 3)),
            "terminals": np.zeros(rows),
            "timeouts": np.zeros(rows),
        }
    )


def replay(rows: int = 40) -> ReplayBuffer:
    rng = np.random.default_rng(1)
    buffer = ReplayBuffer(100, 3, 2)
    if rows:
        buffer.add(
            rng.normal(size=(rows, 3)),
            rng.uniform(-1, 1, size=(rows, 2)),
            np.full(rows, ONLINE),
            rng.normal(size=(rows, 3)),
            np.zeros(rows, bool),
            np.zeros(rows, bool),
        )
    return buffer


def rewards(mixed: MixedSampler, size: int, updates: int = 1, seed: int = 0) -> torch.Tensor:
    """Return the rewards of a block of batches, ``[updates, size]``."""
    generator = torch.Generator().manual_seed(seed)
    mixed.prepare(size, generator, updates)
    batch = mixed.gather(size, generator, updates)
    assert all(len(field) == size * updates for field in batch.tensors())
    return batch.rewards.view(updates, size)


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 33), updates=st.integers(1, 7), ratio=st.floats(0, 1))
def test_every_batch_has_exactly_its_share(size: int, updates: int, ratio: float) -> None:
    mixed = MixedSampler(dataset(), replay(), ratio)
    found = rewards(mixed, size, updates)
    share = offline_share(size, ratio)
    assert (found == OFFLINE).sum(1).tolist() == [share] * updates
    assert (found == ONLINE).sum(1).tolist() == [size - share] * updates
    assert (mixed.offline_rows, mixed.online_rows) == (share * updates, (size - share) * updates)


@given(size=st.integers(1, 4096), steps=st.integers(0, 64))
def test_share_is_rounded_half_up(size: int, steps: int) -> None:
    exact = Fraction(steps, 64) * size  # 64ths are exact in floating point
    share = offline_share(size, steps / 64)
    assert -Fraction(1, 2) < share - exact <= Fraction(1, 2)
    assert 0 <= share <= size


@pytest.mark.parametrize(
    ("size", "ratio", "share"),
    [(5, 0.5, 3), (7, 0.5, 4), (256, 0.5, 128), (9, 0.0, 0), (9, 1.0, 9), (1, 0.49, 0)],
)
def test_known_shares(size: int, ratio: float, share: int) -> None:
    assert offline_share(size, ratio) == share


def test_rows_are_whole_transitions_of_their_source() -> None:
    data, buffer = dataset(), replay()
    mixed = MixedSampler(data, buffer, 0.4)
    generator = torch.Generator().manual_seed(0)
    mixed.prepare(10, generator, 3)
    batch = mixed.gather(10, generator, 3)
    for row in range(30):
        source = data.rows if batch.rewards[row] == OFFLINE else buffer.rows[: len(buffer)]
        whole = torch.cat(
            (batch.obs[row], batch.actions[row], batch.rewards[row : row + 1], batch.next_obs[row])
        )
        assert (source[:, : len(whole)] == whole).all(1).any()


def test_pretraining_uses_only_the_dataset() -> None:
    mixed = MixedSampler(dataset(), replay(0), 0.5, pretraining=True)
    assert (rewards(mixed, 9, 2) == OFFLINE).all()
    assert (mixed.offline_rows, mixed.online_rows) == (18, 0)
    mixed.pretraining = False
    mixed.online = replay()
    assert (rewards(mixed, 8, 2) == ONLINE).sum(1).tolist() == [4, 4]
    assert (mixed.offline_rows, mixed.online_rows) == (26, 8)


@pytest.mark.parametrize("normalized", [False, True])
def test_batches_have_one_layout_in_both_phases(normalized: bool) -> None:
    """A compiled update assumes the strides of the first batch for all later batches."""
    sources: tuple[Sampler, Sampler] = dataset(), replay()
    if normalized:
        offline, online = (NormalizedSampler(x, torch.ones(3), torch.ones(3)) for x in sources)
        sources = offline, online
    mixed = MixedSampler(*sources, 0.5, pretraining=True)
    generator = torch.Generator().manual_seed(0)
    first = mixed.gather(8, generator, 2)
    mixed.pretraining = False
    second = mixed.gather(8, generator, 2)
    assert [x.stride() for x in first.tensors()] == [x.stride() for x in second.tensors()]


@pytest.mark.parametrize(
    ("offline", "online", "ratio", "name"),
    [(50, 0, 0.5, "replay buffer"), (50, 0, 0.0, "replay buffer"), (0, 40, 1.0, "dataset")],
)
def test_empty_source_is_an_error(offline: int, online: int, ratio: float, name: str) -> None:
    data = dataset()
    data.rows = data.rows[:offline]
    mixed = MixedSampler(data, replay(online), ratio)
    with pytest.raises(ValueError, match=f"The {name} is empty"):
        rewards(mixed, 8)
    assert (mixed.offline_rows, mixed.online_rows) == (0, 0)


def test_source_without_a_share_may_be_empty() -> None:
    assert (rewards(MixedSampler(dataset(), replay(0), 1.0), 7) == OFFLINE).all()
    data = dataset()
    data.rows = data.rows[:0]
    assert (rewards(MixedSampler(data, replay(), 0.0), 7) == ONLINE).all()


@pytest.mark.parametrize("ratio", [-0.1, 1.01, math.nan])
def test_ratio_outside_its_range_is_rejected(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"offline_batch_ratio = .* between 0 and 1"):
        MixedSampler(dataset(), replay(), ratio)


def test_block_is_not_longer_than_an_epoch_of_its_source() -> None:
    mixed = MixedSampler(EpochSampler(dataset()), replay(), 0.5)
    assert mixed.most_updates(20) == 5  # 50 rows, 10 per batch
    rewards(mixed, 20, 5)
    assert len(mixed) == 90


def test_counts_and_order_survive_a_restart() -> None:
    generator = torch.Generator().manual_seed(3)
    mixed = MixedSampler(EpochSampler(dataset()), replay(), 0.5)
    mixed.prepare(8, generator, 2)
    mixed.gather(8, generator, 2)
    state, numbers = mixed.state_dict(), generator.get_state()
    again = MixedSampler(EpochSampler(dataset()), replay(), 0.5, pretraining=True)
    again.load_state_dict(state)
    assert (again.offline_rows, again.online_rows, again.pretraining) == (8, 8, False)
    batches = []
    for sampler in (mixed, again):
        generator.set_state(numbers)
        sampler.prepare(8, generator)
        batches.append(sampler.gather(8, generator))
    for one, other in zip(*(b.tensors() for b in batches), strict=True):
        assert torch.equal(one, other)
    assert again.state_dict()["offline_rows"] == mixed.state_dict()["offline_rows"] == 12


@pytest.mark.usefixtures("without_compiler")
def test_recorded_blocks_follow_the_change_from_pretraining(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recorded block of one kind of batches is not replayed for the other."""
    recorded = []

    def pretend(work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        """Replay the recorded updates, in which the sources of the rows are fixed."""
        mixed = engines[-1].sampler
        assert isinstance(mixed, MixedSampler)
        phase = mixed.pretraining
        recorded.append(phase)

        def replay_it() -> None:
            before, mixed.pretraining = mixed.pretraining, phase
            work()
            mixed.pretraining = before

        return replay_it

    monkeypatch.setattr(engine, "capture", pretend)
    config = RLPDConfig(
        hidden_sizes=(8, 8), batch_size=7, num_critics=3, gradient_updates_per_step=5
    )
    engines: list[Engine] = []
    modes: tuple[EngineMode, ...] = ("eager", "cuda_graph")
    for each in modes:
        learner = RLPDAlgorithm.build(EnvSpec(3, 2, (-1.0,) * 2, (1.0,) * 2), config, seed=0)
        mixed = MixedSampler(dataset(), replay(), 0.5, pretraining=True)
        engines.append(Engine(learner, mixed, seed=1, mode=each))
        engines[-1].run(45)
        mixed.pretraining = False
        engines[-1].run(40)
        assert engines[-1].mode == each
        # The last block of pretraining is drawn whole, and a quarter of it is used.
        assert (mixed.offline_rows, mixed.online_rows) == (60 * 7 + 40 * 4, 40 * 3)
    states = [each.algorithm.state_dict() for each in engines]
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=1e-3, atol=1e-4)
    assert recorded == [True, False]
