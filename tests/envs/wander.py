"""A small environment for tests of worker processes, which import this module."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs import pool_worker
from rl_training.errors import TrainingError


class Unreadable:
    """An object that can be sent, but not read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


class UnsendableError(TrainingError):
    """An error of this package that cannot be sent."""

    def __init__(self) -> None:
        super().__init__("the port is taken")
        self.port = lambda: 0


def _raise(error: Exception) -> None:
    raise error


TROUBLES: dict[str, Callable[[], Any]] = {
    "error": lambda: _raise(ValueError("out of fuel\nsecond line")),
    "unsendable error": lambda: _raise(UnsendableError()),
    "unsendable info": lambda: {"lock": threading.Lock()},
    "unreadable info": lambda: {"object": Unreadable()},
    "exit": lambda: sys.exit(3),
    "print": lambda: print("x" * 100_000),
    "large info": lambda: {"many": np.zeros(1_000_000)},
    "pause": lambda: time.sleep(0.1),
    "hang": lambda: time.sleep(3600),
}


class Wander(gym.Env[Any, Any]):
    """Walks at random; episodes have one to four steps, and end by chance in either way.

    Args:
        kind: "box" or "discrete" actions.
        masks: Whether infos have action masks.
        trouble: What `step` does besides, a key of `TROUBLES`; an odd info ends the episode.
        at: The step since the environment was created, counted from 1, with the trouble.
        size: Length of observations.
    """

    def __init__(
        self, kind: str = "box", masks: bool = False, trouble: str = "", at: int = 0, size: int = 3
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(4)
        if kind == "box":
            self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.masks, self.trouble, self.at, self.size = masks, trouble, at, size
        self.steps = self.clock = self.length = 0
        self.actions: list[Any] = []
        self.place = np.zeros(2 * size)

    def _result(self) -> tuple[Any, dict[str, Any]]:
        info: dict[str, Any] = {}
        if self.masks:
            info["action_mask"] = np.append(self.np_random.random(3) < 0.5, True)
        # Strided and of another type, and overwritten by the next step.
        return self.place[::2].astype(np.float64 if self.clock % 2 else np.float32), info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock, self.length = 0, int(self.np_random.integers(1, 5))
        self.place[:] = self.np_random.normal(size=len(self.place))
        if options:
            self.place[:] = options["place"]
        return self._result()

    def step(self, action: Any) -> Any:
        self.steps, self.clock = self.steps + 1, self.clock + 1
        self.actions.append(action)  # it belongs to the environment
        self.place += 0.1 * self.np_random.normal(size=len(self.place)) + np.sum(action)
        extra = TROUBLES[self.trouble]() if self.trouble and self.steps == self.at else None
        ended = self.clock == self.length or extra is not None
        terminated = self.np_random.random() < 0.5
        obs, info = self._result()
        if ended:
            info |= {"length": self.clock, "nested": {"place": self.place[0]}}
        info |= extra or {}
        return obs, float(self.place[0]), ended and terminated, ended and not terminated, info

    @property
    def received(self) -> list[str]:
        """The actions of all steps, with their types."""
        return [f"{type(each).__name__} {each.dtype} {np.asarray(each)}" for each in self.actions]

    def cores(self) -> list[int]:
        """Return the cores that the process may use."""
        return sorted(os.sched_getaffinity(0))

    def descriptors(self) -> int:
        """Return the number of open files of the process."""
        gc.collect()
        return len(os.listdir("/proc/self/fd"))


class KilledOnCreation(Wander):
    """Kills its process."""

    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Hanging(Wander):
    """Hangs when it is closed, in a process with a short grace period."""

    def __init__(self, file: str) -> None:
        super().__init__()
        pool_worker.GRACE_SECONDS = 1
        Path(file).write_text(str(os.getpid()))

    def close(self) -> None:
        while True:
            time.sleep(3600)


def makers(
    count: int, troubled: Sequence[int] = (), **kwargs: Any
) -> tuple[list[Callable[[], Any]], list[str]]:
    """Return functions that make environments, some of them with ``trouble``, and their names."""
    plain = {key: value for key, value in kwargs.items() if key not in ("trouble", "at")}
    return (
        [partial(Wander, **(kwargs if index in troubled else plain)) for index in range(count)],
        [f"env {index}" for index in range(count)],
    )
