"""The boundary between a run and the code of an environment.

Every environment that the package uses is called through `GuardedEnv`:

- What it returns is checked and copied once. (The action that it gets must be its own already.)
- Whatever it raises, `sys.exit` included, becomes one sentence.
- Settings of the process that it changes are its own; the run's are put back after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch

from rl_training.boundary.terminal import tell
from rl_training.envs.contract import (
    AnyEnv,
    ContractError,
    as_flag,
    as_reward,
    check_obs,
    check_reset,
    check_step,
    number_kinds,
)
from rl_training.errors import EnvError
from rl_training.text import error_text
from rl_training.types import FloatArray

Result = TypeVar("Result")
StepResult = tuple[FloatArray, float, bool, bool, dict[str, Any]]
FAILURES = (Exception, SystemExit)
"""What an environment may raise: it does not end the program. An interrupt is not its own."""

Settings = tuple[torch.dtype, bool, int, Any]
"""What all code of a process shares, an environment may change, and training depends on."""

_dtype, _gradients = torch.get_default_dtype, torch.is_grad_enabled
_threads, _device = torch.get_num_threads, torch.get_default_device
_num_modes = torch._C._len_torch_function_stack
"""A default device is one of these modes; asking for the device itself takes microseconds."""


def _apply(settings: Settings) -> None:
    dtype, gradients, threads, device = settings
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(gradients)
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    torch.set_default_device(device or None)


class Isolation:
    """Runs an environment's code with settings of its own.

    They begin as the run's, and what the environment changes holds for its own later calls alone.
    NumPy's error state and the like are in a context. The generators that all code of a process
    shares need no care: training uses none of them.
    """

    def __init__(self) -> None:
        self._context = copy_context()
        self._own: Settings | None = None

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function of the environment."""
        before = _dtype(), _gradients(), _threads(), _num_modes() and _device()
        if self._own is not None:
            _apply(self._own)
        try:
            return self._context.run(function, *args)
        finally:
            after = _dtype(), _gradients(), _threads(), _num_modes() and _device()
            if after != before:
                self._own = after
                _apply(before)
            elif self._own is not None:
                self._own = None


class GuardedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of every environment. It has no state, and none of it is saved.

    Args:
        env: The environment.
        name: What error messages call it.
        isolation: The settings that its constructor ran with.
        kept: The keys of infos that are returned, by default all. A vector environment joins infos
            by keys, some of which are its own.
    """

    def __init__(
        self,
        env: AnyEnv,
        name: str = "",
        isolation: Isolation | None = None,
        *,
        kept: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(env)
        self.name = name or type(env.unwrapped).__name__
        self.isolation = isolation or Isolation()
        self._space = env.observation_space
        self._shape = self._space.shape
        self._kinds = number_kinds(self._space)
        self._kept = kept

    def ask(self, method: str, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function of the environment's code; whatever it raises becomes an EnvError."""
        try:
            return self.isolation.run(function, *args)
        except FAILURES as error:
            raise self._failure(method, error) from error

    def _failure(self, method: str, error: BaseException) -> EnvError:
        if isinstance(error, ContractError):
            return EnvError(f"{self.name}: {error}")
        return EnvError(
            f"{self.name}: its {method} failed with {error_text(error)}; fix the environment"
        )

    def step(self, action: Any) -> StepResult:
        """Step with an action of the environment's own; the result is checked and copied."""
        try:
            return self._checked_step(self.isolation.run(self.env.step, action))
        except FAILURES as error:
            raise self._failure("step", error) from error

    def _checked_step(self, result: Any) -> StepResult:
        if type(result) is not tuple or len(result) != 5:
            check_step(result)
        obs, reward, terminated, truncated, info = result
        if type(terminated) is not bool:
            terminated = as_flag(terminated, "terminated")
        if type(truncated) is not bool:
            truncated = as_flag(truncated, "truncated")
        if type(reward) is not float and type(reward) is not np.float64:
            reward = as_reward(reward)
        is_array = type(obs) is np.ndarray and obs.shape == self._shape
        if not is_array or obs.dtype.kind not in self._kinds:
            check_obs(obs, self._space, "step")
        # The one copy that is needed: many simulators return one array, and write into it.
        return np.array(obs), reward, terminated, truncated, self._reduced(info)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Reset; the result is checked and the observation copied."""
        return self.ask("reset", self._checked_reset, seed, options)

    def _checked_reset(self, seed: int | None, options: Any) -> tuple[FloatArray, dict[str, Any]]:
        result: Any = self.env.reset(seed=seed, options=options)
        if type(result) is not tuple or len(result) != 2:
            check_reset(result)
        obs, info = result
        check_obs(obs, self._space, "reset")
        return np.array(obs), self._reduced(info)

    def _reduced(self, info: Any) -> dict[str, Any]:
        if self._kept == () or not isinstance(info, Mapping):  # no dict: nothing to report
            return {}
        if self._kept is None:
            return dict(info)
        return {key: info[key] for key in self._kept if key in info}

    def render(self) -> Any:
        """Draw."""
        return self.ask("render", self.env.render)

    def close(self) -> None:
        """Close; a failure is a warning, as it must not hide how the training ended."""
        try:
            self.ask("close", self.env.close)
        except EnvError as error:
            tell(f"Warning: {error}.")
