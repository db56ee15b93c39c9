"""Recording an evaluation to a film."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import ConfigError
from rl_training.runtime.evaluation import Evaluator

_INSTALL = "pip install 'rl-training[video]'"


@contextmanager
def record(evaluator: Evaluator, file: Path) -> Iterator[None]:
    """Collect a frame a step and write them when the block ends."""
    if file.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"--video {str(file)!r}: the name must end in .mp4 or .gif.")
    if not file.parent.is_dir():
        raise ConfigError(f"--video {str(file)!r}: there is no folder {str(file.parent)!r}.")
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise ConfigError(f"Recording needs imageio: {_INSTALL}") from None
    frames: list[Any] = []
    evaluator.on_frame = frames.append
    try:
        yield
    except Exception as error:
        if "render" in str(error).lower() or "pygame" in str(error).lower():
            raise ConfigError(f"The environment cannot be drawn ({error}): {_INSTALL}") from error
        raise
    fps = float(evaluator.env.metadata.get("render_fps", 30))
    options: dict[str, Any] = (
        {"duration": 1000.0 / fps, "loop": 0} if file.suffix == ".gif" else {"fps": fps}
    )
    try:
        imageio.imwrite(file, np.stack(frames), **options)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"{file} could not be written ({error}): {_INSTALL}") from error
