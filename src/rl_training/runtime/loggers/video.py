"""Frames of evaluation episodes, as a small animation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rl_training.envs import GuardedEnv
from rl_training.runtime.loggers.base import Frames
from rl_training.text import error_text

MAX_FRAMES = 200
MAX_PIXELS = 256
"""Largest number of frames, and largest height and width, of an animation."""


class Film:
    """Collects the rendered frames of an evaluation; a failure warns once and ends the filming."""

    def __init__(self, episodes: int, warn: Callable[[str], None]) -> None:
        self.episodes = episodes
        self._warn = warn
        self._failed = False
        self._frames: list[Any] = []
        self.frames_per_second = 30.0

    def capture(self, env: GuardedEnv) -> None:
        """Render one frame."""
        if self._failed:
            return
        try:
            frame = np.asarray(env.render())
            if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
                raise ValueError("render() did not return an RGB image")
            self._frames.append(frame)
        except Exception as error:  # rendering may fail in many ways, for example without a screen
            self._failed = True
            self._warn(f"evaluations cannot be filmed ({error_text(error)}). Training continues.")
        self.frames_per_second = frame_rate(env.metadata)

    def cut(self) -> Frames | None:
        """Return the frames so far, reduced to a small animation, and start a new one."""
        frames, self._frames = self._frames, []
        if not frames or any(frame.shape != frames[0].shape for frame in frames):
            return None
        every = -(-len(frames) // MAX_FRAMES)
        height, width, _ = frames[0].shape
        stride = -(-max(height, width) // MAX_PIXELS)
        small: Frames = np.stack([frame[::stride, ::stride] for frame in frames[::every]])
        return small


def frame_rate(metadata: Mapping[str, Any]) -> float:
    """Return the frame rate of an environment, or 30 if it has none."""
    fps = metadata.get("render_fps")
    return float(fps) if isinstance(fps, int | float) and 0 < fps < math.inf else 30.0


def encode_gif(frames: Frames, frames_per_second: float) -> bytes:
    """Return frames as an animated GIF."""
    import imageio.v3 as imageio

    data: bytes = imageio.imwrite(
        "<bytes>", frames, extension=".gif", duration=1000.0 / frames_per_second, loop=0
    )
    return data
