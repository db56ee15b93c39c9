"""Environments with structured observations. Workers and command lines import this module."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

DICT_PENDULUM = "structured/DictPendulum-v0"
EVERYTHING = "structured/Everything-v0"
GRID = "structured/Grid-v0"
PIXELS = "structured/Pixels-v0"
STACKED = "structured/StackedPixels-v0"


class DictPendulum(gym.ObservationWrapper[Any, Any, Any]):
    """Pendulum with the same numbers in a Dict and a Tuple."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gym.make("Pendulum-v1", render_mode=render_mode).unwrapped)
        box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict({"angle": spaces.Tuple((box, box)), "velocity": box})

    def observation(self, observation: Any) -> Any:
        cosine, sine, velocity = np.split(observation, 3)
        return {"angle": (cosine, sine), "velocity": velocity}


class Everything(gym.Env[Any, Any]):
    """All kinds of entries, with values that depend on the seed, the step and the action.

    Args:
        discrete: Whether the action is discrete.
        length: Steps of an episode.
        trouble: Name of the entry that returns a wrong value.
    """

    observation_space = spaces.Dict(
        OrderedDict(  # its order is kept; that of a dict would be sorted
            switches=spaces.MultiDiscrete([2, 3], start=[0, 5]),
            mode=spaces.Discrete(3, start=-1),
            robot=spaces.Tuple((spaces.Box(-9.0, 9.0, (2, 2)), spaces.MultiBinary(3))),
        )
    )

    def __init__(self, discrete: bool = False, length: int = 7, trouble: str = "") -> None:
        box = spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.action_space: Any = spaces.Discrete(2) if discrete else box
        self.length, self.trouble, self.clock = length, trouble, 0

    def _obs(self, push: float) -> dict[str, Any]:
        noise = self.np_random.normal(size=(2, 2)).clip(-5, 5).astype(np.float32)
        mode = self.clock % 3 - 1
        return {
            "mode": 2 if self.trouble == "mode" and self.clock else np.int64(mode),
            "robot": (noise + np.float32(push), np.array([self.clock >> i & 1 for i in range(3)])),
            "switches": np.array([self.clock % 2, 5 + self.clock % 3]),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return self._obs(0.0), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        push = float(np.ravel(action)[0])
        return self._obs(push), -abs(push), False, self.clock >= self.length, {}


class Pixels(gym.Env[Any, Any]):
    """A pixel that moves on a small image, with a vector in a Dict if ``mixed``.

    Args:
        discrete: Whether the action is discrete.
        mixed: Whether the observation is a Dict of an image and a vector.
        channels: Channels of the image, last; 0 for a gray image without an axis for them.
        length: Steps of an episode.
        terminates: Whether episodes terminate; otherwise they are truncated.
        side: Height and width of the image.
    """

    def __init__(
        self,
        discrete: bool = False,
        mixed: bool = False,
        channels: int = 0,
        length: int = 7,
        terminates: bool = False,
        side: int = 6,
    ) -> None:
        self.shape = (side, side, channels) if channels else (side, side)
        image = spaces.Box(0, 255, self.shape, np.uint8)
        vector = spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.mixed, self.length, self.terminates = mixed, length, terminates
        self.observation_space: Any = image
        if mixed:
            self.observation_space = spaces.Dict({"arm": vector, "camera": image})
        box = spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.action_space: Any = spaces.Discrete(3) if discrete else box
        self.place, self.clock = 0, 0

    def _obs(self) -> Any:
        image = np.full(self.shape, 40 * (self.clock % 3), dtype=np.uint8)
        image[self.place % len(image), self.place // len(image) % len(image)] = 255
        if not self.mixed:
            return image
        return {"camera": image, "arm": np.array([self.place, self.clock], np.float32) % 9}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.clock = int(self.np_random.integers(30)), 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        push = float(np.ravel(action)[0])
        self.place = int(abs(self.place + np.rint(3 * push) + self.np_random.integers(2)))
        self.clock += 1
        ended = self.clock >= self.length
        reward = float(self.place % 5)
        return self._obs(), reward, ended and self.terminates, ended and not self.terminates, {}


def stacked_pixels(size: int = 3, **options: Any) -> gym.Env[Any, Any]:
    """Make `Pixels` with Gymnasium's stacks of frames."""
    return gym.wrappers.FrameStackObservation(Pixels(**options), size)


class Grid(gym.Env[Any, Any]):
    """A walk on a line of cells; the observation is the cell, a Discrete number."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.cell = 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(1, 4))
        return self.cell, {}

    def step(self, action: Any) -> Any:
        self.cell += 2 * int(action) - 1
        return self.cell, float(self.cell == 4), self.cell in (0, 4), False, {}


for _name, _entry, _limit in (
    (DICT_PENDULUM, DictPendulum, 200),
    (EVERYTHING, Everything, None),
    (GRID, Grid, 20),
    (PIXELS, Pixels, None),
    (STACKED, stacked_pixels, None),
):
    if _name not in gym.registry:
        gym.register(_name, f"{__name__}:{_entry.__name__}", max_episode_steps=_limit)
