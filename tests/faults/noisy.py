"""An environment that prints a lot; importing this module prints and registers it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

NOISY = "Faults/Noisy-v0"


class NoisyEnv(PendulumEnv):
    """A pendulum that prints every step to `sys.stdout` and to its file descriptor."""

    def step(self, u: Any) -> Any:
        """Print, then move."""
        print('{"step": "printed"}')
        with contextlib.suppress(OSError):  # like a C library
            os.write(1, b"step written to the descriptor\n")
        return super().step(u)  # type: ignore[no-untyped-call]

    def reset(self, **options: Any) -> Any:
        """Let a child process print, then reset."""
        os.system("echo reset by a child process")
        return super().reset(**options)


if multiprocessing.current_process().name == "MainProcess":
    print("import printed")
if NOISY not in gym.registry:
    gym.register(NOISY, entry_point=lambda **kwargs: NoisyEnv(**kwargs), max_episode_steps=50)
