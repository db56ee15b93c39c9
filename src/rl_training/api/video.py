"""Video recording of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl_training.api.arguments import as_output
from rl_training.boundary.writing import write_output
from rl_training.envs import GuardedEnv
from rl_training.errors import ConfigError
from rl_training.runtime.evaluation import EvaluationResult, Evaluator, Policy
from rl_training.runtime.loggers.video import frame_rate
from rl_training.text import first_line

_INSTALL = "pip install 'rl-training[video]'"


def record(
    evaluator: Evaluator, policy: Policy, episodes: int, file: str | Path
) -> EvaluationResult:
    """Evaluate a policy and write a video of its episodes, one frame per step."""
    file = as_output("video", file, (".mp4", ".gif"))
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise ConfigError(
            f"Recording a video requires imageio. Install it with: {_INSTALL}"
        ) from None
    camera = Recorder(episodes)
    try:
        result = evaluator.evaluate(policy, episodes, camera)
    except Exception as error:
        if "render" in str(error).lower() or "pygame" in str(error).lower():
            raise ConfigError(
                f"The environment cannot be rendered ({first_line(error)}). Install the "
                f"video extra with: {_INSTALL}"
            ) from error
        raise
    fps, ending = frame_rate(evaluator.env.metadata), file.suffix.lower()
    options: dict[str, Any] = (
        {"duration": 1000.0 / fps, "loop": 0} if ending == ".gif" else {"fps": fps}
    )
    try:
        data = imageio.imwrite("<bytes>", np.stack(camera.frames), extension=ending, **options)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"{file} could not be written ({first_line(error)}). Install the video extra with: "
            f"{_INSTALL}"
        ) from error
    write_output(file, data)
    return result


class Recorder:
    """Keeps the frames of all episodes."""

    def __init__(self, episodes: int) -> None:
        self.episodes = episodes
        self.frames: list[Any] = []

    def capture(self, env: GuardedEnv) -> None:
        """Render one frame."""
        self.frames.append(env.render())
