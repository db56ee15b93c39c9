"""The boundary between a run and the code of an environment.

Every environment is called through `GuardedEnv`:

- Results are checked and copied once. (The caller passes a copy of the action.)
- Every exception, including `SystemExit`, becomes an `EnvError` with a one-sentence message.
- Process-wide settings that an environment changes apply only to its own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch

from rl_training.boundary.terminal import print_stderr
from rl_training.envs.contract import (
    ACTION_MASK,
    AnyEnv,
    ContractError,
    as_flag,
    as_reward,
    check_obs,
    check_reset,
    check_step,
    number_kinds,
    read_action_mask,
)
from rl_training.errors import EnvError
from rl_training.text import error_text
from rl_training.types import BoolArray, FloatArray

Result = TypeVar("Result")
StepResult = tuple[FloatArray, float, bool, bool, dict[str, Any]]
FAILURES = (Exception, SystemExit)
"""Exceptions of an environment that become errors; KeyboardInterrupt is not one of them."""

Settings = tuple[torch.dtype, bool, int, Any]
"""Process-wide settings that an environment may change and that training depends on."""

_dtype, _gradients = torch.get_default_dtype, torch.is_grad_enabled
_threads, _device = torch.get_num_threads, torch.get_default_device
_num_modes = torch._C._len_torch_function_stack
"""Counts the active modes, which include a default device; faster than getting the device."""


def _apply(settings: Settings) -> None:
    dtype, gradients, threads, device = settings
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(gradients)
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    torch.set_default_device(device or None)


class Isolation:
    """Runs an environment's code with separate process-wide settings.

    They start as the settings of the run; changes apply only to later calls of the environment.
    Context variables such as NumPy's error state are kept in a separate context. The global random
    generators are not isolated, since training does not use them.
    """

    def __init__(self) -> None:
        self._context = copy_context()
        self._own: Settings | None = None

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function of the environment with its settings."""
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
    """The outermost wrapper of every environment. It has no state to save.

    Args:
        env: The environment.
        name: Name of the environment in error messages.
        isolation: The settings that its constructor ran with.
        kept: Keys of the infos to return, all by default. A vector environment merges infos by
            key and adds keys itself. A kept action mask is checked and converted to booleans.
        keep_open: Whether `close` leaves the environment open, because it belongs to the user.
    """

    def __init__(
        self,
        env: AnyEnv,
        name: str = "",
        isolation: Isolation | None = None,
        *,
        kept: tuple[str, ...] | None = None,
        keep_open: bool = False,
    ) -> None:
        super().__init__(env)
        self.name = name or type(env.unwrapped).__name__
        self.isolation = isolation or Isolation()
        self._space = env.observation_space
        self._shape = self._space.shape
        self._kinds = number_kinds(self._space)
        self._kept = kept
        self._keep_open = keep_open
        self.last_info: Mapping[str, Any] = {}
        """All of the info that the latest step returned."""
        self._has_masks = kept is not None and ACTION_MASK in kept

    def call(self, method: str, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function of the environment; any exception becomes an EnvError."""
        try:
            return self.isolation.run(function, *args)
        except FAILURES as error:
            raise self._failure(method, error) from error

    def _failure(self, method: str, error: BaseException) -> EnvError:
        if isinstance(error, ContractError):
            return EnvError(f"{self.name}: {error}")
        return EnvError(
            f"{self.name}: {method}() failed with {error_text(error)}; fix the environment"
        )

    def step(self, action: Any) -> StepResult:
        """Step with a copy of an action; the result is checked and copied."""
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
        self.last_info = info if isinstance(info, Mapping) else {}
        kept = self._reduced(info)
        if self._has_masks:
            kept[ACTION_MASK] = self._read_mask(info, "step", terminated)
        # Many simulators return the same array at every step and overwrite it.
        return np.array(obs), reward, terminated, truncated, kept

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Reset the environment; the result is checked and the observation copied."""
        return self.call("reset", self._checked_reset, seed, options)

    def _checked_reset(self, seed: int | None, options: Any) -> tuple[FloatArray, dict[str, Any]]:
        result: Any = self.env.reset(seed=seed, options=options)
        if type(result) is not tuple or len(result) != 2:
            check_reset(result)
        obs, info = result
        check_obs(obs, self._space, "reset")
        kept = self._reduced(info)
        if self._has_masks:
            kept[ACTION_MASK] = self._read_mask(info, "reset")
        return np.array(obs), kept

    def action_mask(
        self, info: Mapping[str, Any], method: str, terminated: bool = False
    ) -> BoolArray:
        """Return the legal actions in the info of a reset or step."""
        return self.call(method, self._read_mask, info, method, terminated)

    def _read_mask(self, info: Any, method: str, terminated: bool = False) -> BoolArray:
        num_actions = int(self.action_space.n)  # type: ignore[attr-defined]
        if terminated:  # no action follows, so the environment may return any mask, or none
            return np.ones(num_actions, dtype=bool)
        return read_action_mask(info if isinstance(info, Mapping) else {}, num_actions, method)

    def _reduced(self, info: Any) -> dict[str, Any]:
        if self._kept == () or not isinstance(info, Mapping):
            return {}
        if self._kept is None:
            return dict(info)
        return {key: info[key] for key in self._kept if key in info}

    def render(self) -> Any:
        """Render the environment."""
        return self.call("render", self.env.render)

    def close(self) -> None:
        """Close the environment, unless it belongs to the user; a failure only warns."""
        if self._keep_open:
            return
        try:
            self.call("close", self.env.close)
        except EnvError as error:
            print_stderr(f"Warning: {error}.")
