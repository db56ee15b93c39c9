"""Drawing for all members at once: the numbers of PyTorch's CUDA generators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.sac import SACAlgorithm, SACConfig
from rl_training.data.samplers import NormalizedSampler
from rl_training.runtime.engine import Engine
from rl_training.runtime.population.draws import PopulationDraws
from rl_training.runtime.population.philox import OFFSET, draw, philox
from rl_training.runtime.population.programs import stack_state
from rl_training.types import NoiseField
from tests.runtime.test_engine import SPEC, replay

KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 2,
        (0xFFFFFFFF,) * 4,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
]
"""Keys, counters and words published with the generator."""


def reference(seed: int, offset: int, index: int) -> list[int]:
    """Compute the four words with Python's integers."""
    counter = [offset // 4 & 0xFFFFFFFF, offset // 4 >> 32, index & 0xFFFFFFFF, index >> 32]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        low, high = 0xFFFFFFFF, 32
        counter = [
            b >> high ^ counter[1] ^ key[0],
            b & low,
            a >> high ^ counter[3] ^ key[1],
            a & low,
        ]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter


def test_words_equal_the_published_ones() -> None:
    zero = torch.zeros(1, dtype=torch.int64)
    assert [int(word) for word in philox(zero, zero, zero)] == list(KNOWN[0][2])


@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (5, 4), (2**63 - 25, 2**40 + 8)])
def test_words_equal_a_reference(seed: int, offset: int) -> None:
    index = torch.tensor([0, 1, 77, 2**20 + 3])
    found = philox(torch.tensor([seed]), torch.tensor([offset]), index)
    for column, number in enumerate(index.tolist()):
        assert [int(word[column]) for word in found] == reference(seed, offset, number)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_have_their_distributions(dtype: torch.dtype) -> None:
    seeds, offsets = torch.tensor([1, 2]), torch.tensor([0, 64])
    normal = draw(NoiseField("normal", (100_000,)), seeds, offsets, dtype)
    uniform = draw(NoiseField("uniform", (100_000,)), seeds, offsets, dtype)
    assert normal.dtype == uniform.dtype == dtype
    assert not torch.equal(normal[0], normal[1])
    for row in normal:
        assert abs(float(row.mean())) < 4 / math.sqrt(100_000)
        assert abs(float(row.std()) - 1.0) < 0.01
    assert 0.0 <= float(uniform.min()) < float(uniform.max()) < 1.0
    edges = np.histogram(uniform[0].numpy(), bins=20, range=(0, 1))[0]
    assert ((edges - 5_000) ** 2 / 5_000).sum() < 45  # χ² with 19 degrees of freedom, p < 0.001


def make_draws(count: int, **settings: Any) -> tuple[list[Engine], PopulationDraws]:
    config = SACConfig(hidden_sizes=(8,), batch_size=16, **settings)
    members = [SACAlgorithm.build(SPEC, config, seed=seed) for seed in range(count)]
    rows = []
    for seed, member in enumerate(members):
        buffer = replay()
        if member.has_running_statistics:
            member.observe(buffer.rows[seed : seed + 9, : SPEC.obs_dim], torch.zeros(9))
        sampler = NormalizedSampler(buffer, *member.normalization) if settings else buffer
        rows.append(Engine(member, sampler, seed=seed))
    return rows, PopulationDraws([*rows, None], stack_state([*members, members[0]]))


@pytest.mark.parametrize("settings", [{}, {"normalize_observations": True}])
def test_a_block_has_the_rows_and_the_noise_of_every_member(settings: dict[str, bool]) -> None:
    engines, draws = make_draws(2, **settings)
    seeds, offsets, updates = [3, 8, 0], [4, 400, 0], 3
    draws.table.seeds.copy_(torch.tensor(seeds))
    draws.table.offsets.copy_(torch.tensor(offsets))
    obs, actions, rewards, _, _, *noise = draws.trace(updates)(*draws.inputs)
    assert draws.table.offsets.tolist() == [offset + 3 * OFFSET for offset in offsets]
    for member, engine in enumerate(engines):
        seed, offset = seeds[member], offsets[member]
        where = torch.tensor([seed]), torch.tensor([offset])
        uniform = draw(NoiseField("uniform", (48,)), *where, torch.float64)[0]
        buffer: Any = getattr(engine.sampler, "source", engine.sampler)
        rows = buffer.rows[(uniform * len(buffer)).long()].view(updates, 16, -1)
        batch = buffer.layout.batch(rows)
        batch = engine.algorithm.normalization.batch(batch)
        torch.testing.assert_close(obs[:, member], batch.obs)
        assert torch.equal(actions[:, member], batch.actions)
        assert torch.equal(rewards[:, member], batch.rewards)
        spec = engine.algorithm.update_noise(16)
        for number, (field, found) in enumerate(zip(spec.values(), noise, strict=True), start=1):
            before = where[0], where[1] + OFFSET * number
            own = draw(field, *before, torch.float32, lead=(updates,))[0]
            assert torch.equal(found[:, member], own)


def test_a_replay_continues_in_the_stacked_rows() -> None:
    engines, draws = make_draws(2)
    buffer: Any = engines[1].sampler
    obs, action, yes = np.ones((1, SPEC.obs_dim)), np.ones((1, SPEC.action_dim)), np.ones(1, bool)
    buffer.add(obs, action, np.full(1, 7.0), obs, yes, yes)
    position = (buffer.total - 1) % buffer.capacity
    assert torch.equal(draws.replays.rows[1, position], buffer.rows[position])
    assert buffer.layout.batch(draws.replays.rows[1, position]).rewards == 7.0
    assert draws.replays.filled[1] == len(buffer)
