"""The dataset for `dataset_kind: starter`, which the packaged offline configs use."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.writing import TEMPORARY, remove
from rl_training.data.dataset_writers import write_arrays
from rl_training.envs import make_env
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.recording import record
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import ActionArray, FloatArray

BLOCK_STEPS = 200
"""Steps after which it is drawn again whether the controller acts; an episode of Pendulum-v1."""
RANDOM_BLOCKS = 0.25
"""Probability that a block has uniformly random actions."""
MAX_TORQUE = 2.0
TORQUE_NOISE = 1.0
"""Standard deviation of the noise on the torque that swings the pendulum up."""
RANDOM_PUSHES = 0.3
"""Probability of a random push while balancing the cart pole."""


def record_starter(config: TrainConfig, size: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Record ``size`` transitions with a noisy controller and with random actions.

    The same seed gives the same rows, so that a resumed run has the data that it started with.
    """
    starter = STARTERS.get(str(config.env_id))
    if starter is None or config.parts.env.make_kwargs:
        raise ConfigError(
            f"dataset_kind = starter is only available for {' and '.join(STARTERS)} without "
            "env_kwargs: use your own data with dataset_path=FILE, or use dataset_kind=random."
        )
    with closing(make_env(str(config.env_id), {})) as env:
        return record(env, starter_policy(starter, seed), steps=size, seed=seed)


def save_starter(config: TrainConfig) -> str | None:
    """Write the starter dataset if the run needs it and it does not exist; return a message if so.

    All runs that start in the same folder share the file. If they start at the same time, they
    write the same rows.
    """
    settings = config.parts.data
    if not settings.needs_starter_recording:
        return None
    arrays = record_starter(config, settings.dataset_size, settings.dataset_seed)
    file = Path(settings.starter_file)
    temporary = file.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{file.name}")
    write_arrays(arrays, temporary)
    try:
        os.replace(temporary, file)
    except OSError as error:
        remove(temporary)
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None
    return (
        f"Recorded {settings.dataset_size:,} transitions of {config.env_id} to {file} with "
        f"{STARTERS[str(config.env_id)].controller}, and with random actions in "
        f"{RANDOM_BLOCKS:.0%} of the time. To use your own data, set dataset_path=FILE."
    )


@dataclass(frozen=True)
class Starter:
    """A noisy controller of an environment, and its random actions."""

    controller: str
    control: Callable[[FloatArray, np.random.Generator], ActionArray | int]
    play_at_random: Callable[[np.random.Generator], ActionArray | int]


def starter_policy(starter: Starter, seed: int) -> Callable[[FloatArray], Any]:
    """Return a noisy controller that acts at random in some blocks of steps."""
    generator = np.random.default_rng(derive_seed(seed, Stream.EXPLORATION, 2))
    steps, is_random = 0, False

    def choose(obs: FloatArray) -> Any:
        nonlocal steps, is_random
        if steps % BLOCK_STEPS == 0:
            is_random = generator.random() < RANDOM_BLOCKS
        steps += 1
        if is_random:
            return starter.play_at_random(generator)
        return starter.control(obs, generator)

    return choose


def _random_torque(generator: np.random.Generator) -> FloatArray:
    return generator.uniform(-MAX_TORQUE, MAX_TORQUE, 1).astype(np.float32)


def _swing_up(obs: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Pump energy until the pendulum is near the top, then balance it.

    The pendulum is a rod of mass 1 and length 1 with gravity 10. At rest at the top, its energy
    is 5.
    """
    cosine, sine, velocity = obs.tolist()
    if cosine > 0.8:
        torque = -10.0 * math.atan2(sine, cosine) - 2.0 * velocity
    else:
        lacking = 5.0 - (velocity**2 / 6.0 + 5.0 * cosine)
        torque = math.copysign(MAX_TORQUE, velocity) * math.copysign(1.0, lacking)
    noisy: FloatArray = torque + TORQUE_NOISE * generator.standard_normal(1)
    return np.clip(noisy, -MAX_TORQUE, MAX_TORQUE).astype(np.float32)


def _random_push(generator: np.random.Generator) -> int:
    return int(generator.integers(2))


def _balance(obs: FloatArray, generator: np.random.Generator) -> int:
    """Push the cart to the side to which the pole falls."""
    if generator.random() < RANDOM_PUSHES:
        return _random_push(generator)
    place, speed, angle, turn = obs.tolist()
    return int(angle + 0.5 * turn + 0.05 * place + 0.1 * speed > 0.0)


STARTERS = {
    "Pendulum-v1": Starter("a noisy swing-up controller", _swing_up, _random_torque),
    "CartPole-v1": Starter("a noisy balancing controller", _balance, _random_push),
}
"""The controllers of `STARTER_FILES`."""
