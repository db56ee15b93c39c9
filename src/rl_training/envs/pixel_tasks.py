"""Small tasks with images as observations, drawn with NumPy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control.pendulum import PendulumEnv

CATCH = "rl_training/Catch-v0"
PIXEL_PENDULUM = "rl_training/PixelPendulum-v0"
CELLS = 12
"""Width and height of the field of Catch, in cells."""
CELL = 7
"""Width and height of a cell, in pixels."""
CATCH_STEPS = 100
PENDULUM_STEPS = 200

Image = npt.NDArray[np.uint8]


class CatchEnv(gym.Env[Image, Any]):
    """Catch falling balls with a paddle, from raw frames of 84×84 gray pixels.

    The field has 12×12 cells. A ball starts at a random column of the top row, falls one cell per
    step, and moves sideways by -1, 0 or 1 cells, reflected by the walls. The actions move the
    paddle, which is three cells wide: 0 to the left, 1 not at all, 2 to the right. The reward is 1
    if the ball meets the paddle in the bottom row, -1 if it does not, and 0 before that. The next
    ball follows, and an episode of 100 steps has nine. Random play catches about one ball in four,
    which is a return of -4.5.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 - as in Gymnasium

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        shape = (CELLS * CELL, CELLS * CELL)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self.paddle = CELLS // 2
        self.ball = (0, 0)
        self.drift = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Place the paddle at random and drop the first ball."""
        super().reset(seed=seed)
        self.paddle = int(self.np_random.integers(1, CELLS - 1))
        self._drop()
        return self._draw(), {}

    def _drop(self) -> None:
        self.ball = (0, int(self.np_random.integers(CELLS)))
        self.drift = int(self.np_random.integers(-1, 2))

    def step(self, action: Any) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Move the paddle and the ball."""
        self.paddle = min(max(self.paddle + int(action) - 1, 1), CELLS - 2)
        row, column = self.ball
        if not 0 <= column + self.drift < CELLS:
            self.drift = -self.drift
        self.ball = (row + 1, column + self.drift)
        reward = 0.0
        if self.ball[0] == CELLS - 1:
            reward = 1.0 if abs(self.ball[1] - self.paddle) <= 1 else -1.0
        obs = self._draw()
        if reward:
            self._drop()
        return obs, reward, False, False, {}

    def _draw(self) -> Image:
        image = np.zeros((CELLS * CELL, CELLS * CELL), dtype=np.uint8)
        row, column = CELL * self.ball[0], CELL * self.ball[1]
        image[-CELL:, CELL * (self.paddle - 1) : CELL * (self.paddle + 2)] = 128
        image[row : row + CELL, column : column + CELL] = 255
        return image

    def render(self) -> Any:
        """Draw the field in color."""
        return np.repeat(self._draw()[..., None], 3, axis=-1)


class PixelPendulumEnv(PendulumEnv):
    """Gymnasium's Pendulum with an image of the rod instead of its angle and velocity.

    The image has ``size``×``size`` gray pixels. A single image does not show the velocity: stack
    several with ``frame_stack``.
    """

    def __init__(self, size: int = 32, render_mode: str | None = None, g: float = 10.0) -> None:
        if not 8 <= size <= 512:
            raise ValueError(f"size = {size}: should be between 8 and 512")
        super().__init__(render_mode=render_mode, g=g)
        self.size = size
        self.observation_space: Any = gym.spaces.Box(0, 255, (size, size), np.uint8)

    def _get_obs(self) -> Any:
        """Draw the rod, which points up at the angle 0, with smooth edges."""
        angle = float(self.state[0])
        axis = (np.arange(self.size) - (self.size - 1) / 2) / (0.42 * self.size)
        x, y = axis[None, :], -axis[:, None]
        along = x * np.sin(angle) + y * np.cos(angle)
        aside = x * np.cos(angle) - y * np.sin(angle)
        beyond = along - np.clip(along, 0.0, 1.0)
        distance = np.hypot(aside, beyond)
        width = 0.12
        edge = 1.0 / (0.42 * self.size)  # one pixel
        bright = np.clip((width + edge - distance) / edge, 0.0, 1.0)
        return np.rint(255.0 * bright).astype(np.uint8)


def register() -> None:
    """Register the environments with Gymnasium."""
    for name, entry, steps in (
        (CATCH, "CatchEnv", CATCH_STEPS),
        (PIXEL_PENDULUM, "PixelPendulumEnv", PENDULUM_STEPS),
    ):
        if name not in gym.registry:
            module = "rl_training.envs.pixel_tasks"
            gym.register(name, entry_point=f"{module}:{entry}", max_episode_steps=steps)
