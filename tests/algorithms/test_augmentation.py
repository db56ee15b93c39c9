"""Random shifts equal a slow reference, and only images of updates are shifted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training.algorithms.augmentation import random_shift, shifted_batch
from rl_training.algorithms.base import draw_noise
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.observations import Entry
from rl_training.types import Batch, EnvSpec
from tests.reference import cnn as reference

IMAGES = {
    "gray": Entry("", "image", (7, 5), "uint8", 0, high=255),
    "channels last": Entry("", "image", (7, 5, 3), "uint8", 0, high=255),
    "channels first": Entry("", "image", (3, 7, 5), "uint8", 0, high=255),
    "stack": Entry("", "image", (2, 7, 5, 3), "uint8", 0, frames=2, high=255),
}


@pytest.mark.parametrize("name", IMAGES)
@given(pad=st.integers(1, 6), seed=st.integers(0, 100))
def test_shift_equals_the_reference(name: str, pad: int, seed: int) -> None:
    image, random = IMAGES[name], np.random.default_rng(seed)
    pixels = random.integers(0, 256, (4, image.width)).astype(np.float32)
    uniform = random.random((4, 2)).astype(np.float32)
    shifted = random_shift(
        torch.from_numpy(pixels), image, torch.from_numpy(uniform), pad=pad
    ).numpy()
    axes = image.planes._asdict()
    before, after = (reference.planes(x, **axes) for x in (pixels, shifted))
    for row in range(4):
        down, right = (int(number * (2 * pad + 1)) for number in uniform[row])
        for plane in range(image.planes.depth):
            expected = reference.shift_image(before[row, plane], down, right, pad)
            np.testing.assert_array_equal(after[row, plane], expected)


def mixed() -> EnvSpec:
    image = Entry("camera", "image", (6, 6), "uint8", 2, high=255)
    vector = Entry("arm", "vector", (2,), "float32", 0)
    return EnvSpec(38, 3, discrete=True, entries=(vector, image))


def batch(spec: EnvSpec, rows: int = 8) -> Batch:
    random = np.random.default_rng(0)
    obs = random.integers(0, 256, (2, rows, spec.obs_dim)).astype(np.float32)
    return Batch(
        torch.from_numpy(obs[0]),
        torch.zeros(rows, 1),
        torch.ones(rows),
        torch.from_numpy(obs[1]),
        torch.zeros(rows),
    )


def test_observations_are_shifted_independently_and_vectors_are_not() -> None:
    spec, rows = mixed(), batch(mixed())
    uniform = torch.zeros(8, 2, 2)
    uniform[:, 1] = 0.999
    shifted = shifted_batch(rows, spec, uniform, pad=2)
    for before, after in ((rows.obs, shifted.obs), (rows.next_obs, shifted.next_obs)):
        assert torch.equal(before[:, :2], after[:, :2])
    first, then = (x[:, 2:].view(8, 6, 6) for x in (rows.obs, shifted.obs))
    assert torch.equal(then[:, 2:, 2:], first[:, :-2, :-2])
    first, then = (x[:, 2:].view(8, 6, 6) for x in (rows.next_obs, shifted.next_obs))
    assert torch.equal(then[:, :-2, :-2], first[:, 2:, 2:])


def test_middle_of_the_range_is_no_shift() -> None:
    rows = batch(mixed())
    uniform = torch.full((8, 2, 2), 0.5)
    assert torch.equal(shifted_batch(rows, mixed(), uniform, pad=4).obs, rows.obs)


def test_update_is_that_of_the_shifted_batch() -> None:
    config = DQNConfig(augmentation="random_shift", augmentation_pad=2, hidden_sizes=(8,))
    one, two = (DQNAlgorithm.build(mixed(), config, seed=1) for _ in range(2))
    rows, noise = batch(mixed()), draw_noise(one.update_noise(8), torch.Generator().manual_seed(0))
    assert set(noise) == {"augmentation"}
    one.run_update(rows, noise, one.due(0))
    two.update(shifted_batch(rows, mixed(), noise["augmentation"], pad=2), {}, two.due(0))
    assert torch.equal(one.model.flat, two.model.flat)
    plain = DQNAlgorithm.build(mixed(), DQNConfig(hidden_sizes=(8,)), seed=1)
    assert plain.update_noise(8) == {}
    plain.run_update(rows, {}, plain.due(0))
    assert not torch.equal(one.model.flat, plain.model.flat)


def test_actions_and_held_out_losses_use_the_original_images() -> None:
    config = DQNConfig(augmentation="random_shift", hidden_sizes=(8,))
    shifting = DQNAlgorithm.build(mixed(), config, seed=1)
    plain = DQNAlgorithm.build(mixed(), DQNConfig(hidden_sizes=(8,)), seed=1)
    rows = batch(mixed())
    losses = [learner.held_out_losses(rows, {})["loss/q"] for learner in (shifting, plain)]
    assert torch.equal(*losses)


def test_pad_without_augmentation_is_rejected() -> None:
    with pytest.raises(ValueError, match="augmentation_pad only applies to augmentation=random"):
        DQNConfig(augmentation_pad=2)
