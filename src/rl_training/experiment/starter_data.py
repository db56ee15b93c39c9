"""The dataset for `dataset_kind: starter`, which the packaged offline configs use."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.writing import TEMPORARY, remove
from rl_training.data.config import STARTER_FILE
from rl_training.data.dataset_writers import write_arrays
from rl_training.envs import make_env
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.recording import record
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import FloatArray

STARTER_ENV = "Pendulum-v1"
EPISODE_STEPS = 200
MAX_TORQUE = 2.0
NOISE = 1.0
"""Standard deviation of the noise on the controller's torque."""
RANDOM_EPISODES = 0.25
"""Probability that an episode has uniformly random actions."""


def record_starter(config: TrainConfig, size: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Record ``size`` transitions with a noisy swing-up controller and with random actions.

    The same seed gives the same rows, so that a resumed run has the data that it started with.
    """
    if config.env_id != STARTER_ENV or config.parts.env.make_kwargs:
        raise ConfigError(
            f"dataset_kind = starter is only available for {STARTER_ENV} without env_kwargs: use "
            "your own data with dataset_path=FILE, or use dataset_kind=random."
        )
    with closing(make_env(STARTER_ENV, {})) as env:
        return record(env, starter_policy(seed), steps=size, seed=seed)


def save_starter(config: TrainConfig) -> str | None:
    """Write the starter dataset if the run needs it and it does not exist; return a message if so.

    All runs that start in the same folder share the file. If they start at the same time, they
    write the same rows.
    """
    settings = config.parts.data
    if not settings.needs_starter_recording:
        return None
    arrays = record_starter(config, settings.dataset_size, settings.dataset_seed)
    file = Path(STARTER_FILE)
    temporary = file.with_name(f"{TEMPORARY}{secrets.token_hex(4)}-{file.name}")
    write_arrays(arrays, temporary)
    try:
        os.replace(temporary, file)
    except OSError as error:
        remove(temporary)
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None
    return (
        f"Recorded {settings.dataset_size:,} transitions of {STARTER_ENV} to {file} with a noisy "
        f"swing-up controller, and with random actions in {RANDOM_EPISODES:.0%} of the episodes. "
        "To use your own data, set dataset_path=FILE."
    )


def starter_policy(seed: int) -> Callable[[FloatArray], FloatArray]:
    """Return a noisy swing-up controller that acts at random in some episodes."""
    generator = np.random.default_rng(derive_seed(seed, Stream.EXPLORATION, 2))
    steps, is_random = 0, False

    def choose(obs: FloatArray) -> FloatArray:
        nonlocal steps, is_random
        if steps % EPISODE_STEPS == 0:
            is_random = generator.random() < RANDOM_EPISODES
        steps += 1
        if is_random:
            return generator.uniform(-MAX_TORQUE, MAX_TORQUE, 1).astype(np.float32)
        torque = _swing_up(*obs.tolist()) + NOISE * generator.standard_normal(1)
        return np.clip(torque, -MAX_TORQUE, MAX_TORQUE).astype(np.float32)

    return choose


def _swing_up(cosine: float, sine: float, velocity: float) -> float:
    """Pump energy until the pendulum is near the top, then balance it.

    The pendulum is a rod of mass 1 and length 1 with gravity 10. At rest at the top, its energy
    is 5.
    """
    if cosine > 0.8:
        return -10.0 * math.atan2(sine, cosine) - 2.0 * velocity
    lacking = 5.0 - (velocity**2 / 6.0 + 5.0 * cosine)
    return math.copysign(MAX_TORQUE, velocity) * math.copysign(1.0, lacking)
