"""Importing this module registers an environment whose members wait for each other."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SECONDS = 30.0


class Meeting(gymnasium.Env[np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """Each step ends when all members have started it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, folder: str, members: int) -> None:
        self.folder, self.members = Path(folder), members
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if multiprocessing.parent_process() is None:  # the check of the environment
            return np.zeros(2, np.float32), 0.0, False, False, {}
        (self.folder / f"{self.steps}-{id(self)}-{time.monotonic_ns()}").touch()
        deadline = time.monotonic() + SECONDS
        while len(list(self.folder.glob(f"{self.steps}-*"))) < self.members:
            if time.monotonic() > deadline:
                raise TimeoutError("the other members have not started this step")
            time.sleep(0.001)
        return np.zeros(2, np.float32), 0.0, False, self.steps % 10 == 0, {}


gymnasium.register("Meeting-v0", f"{__name__}:Meeting")
