"""Flatten the observations of an environment to one vector, and stack its images."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rl_training.envs.contract import AnyEnv, ContractError, check_obs, space_name
from rl_training.envs.guard import GuardedEnv
from rl_training.errors import ConfigError
from rl_training.observations import MAX_CHOICES, Entry, EntryKind, ObservationError, Planes
from rl_training.text import shown
from rl_training.types import FloatArray

MAX_STACK = 64
"""Largest number of frames in a stack of images."""
_CONVERT = "convert it with a gymnasium.ObservationWrapper"


class FlatObservations(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations are one vector; it has no state to save.

    The vectors are float32, or uint8 if they contain only images.
    """

    def __init__(self, env: AnyEnv, entries: tuple[Entry, ...]) -> None:
        super().__init__(env)
        self.entries = entries
        self._space = env.observation_space
        only_images = all(entry.kind == "image" for entry in entries)
        dtype: Any = np.uint8 if only_images else np.float32
        low, high = (bound.astype(dtype) for bound in flat_bounds(self._space))
        self.observation_space = spaces.Box(low, high, dtype=dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Reset the environment and flatten the observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._flatten(obs, "reset"), info

    def step(self, action: Any) -> tuple[FloatArray, Any, bool, bool, dict[str, Any]]:
        """Step the environment and flatten the observation."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._flatten(obs, "step"), reward, terminated, truncated, info

    def _flatten(self, obs: Any, method: str) -> Any:
        check_obs(obs, self._space, method)
        values = _values(self._space, obs)
        try:
            parts = [
                entry.flatten(np.asarray(value)[None])[0]
                for entry, value in zip(self.entries, values, strict=True)
            ]
        except ObservationError as error:
            raise ContractError(f"{method}() returns an observation, but {error}") from None
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class FrameStack(gym.Wrapper[Any, Any, Any, Any]):
    """Replaces each image of an observation with the last ``size`` ones, the oldest first.

    Like Gymnasium's FrameStackObservation, the stack is a new axis, the first, and starts with
    copies of an episode's first image. Other entries of a Dict or Tuple are not stacked, and the
    state can be saved.
    """

    def __init__(self, env: AnyEnv, size: int) -> None:
        super().__init__(env)
        self.size = size
        self._frames: dict[str, Any] = {}
        self.observation_space = self._stacked_space(env.observation_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and start new stacks."""
        obs, info = self.env.reset(seed=seed, options=options)
        check_obs(obs, self.env.observation_space, "reset")
        self._frames = {}
        return self._stacked(self.env.observation_space, obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and add its images to the stacks."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        check_obs(obs, self.env.observation_space, "step")
        obs = self._stacked(self.env.observation_space, obs)
        return obs, reward, terminated, truncated, info

    def _stacked_space(self, space: gym.Space[Any]) -> gym.Space[Any]:
        if isinstance(space, spaces.Dict):
            parts = {key: self._stacked_space(part) for key, part in space.spaces.items()}
            return spaces.Dict(OrderedDict(parts))  # in the same order
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple([self._stacked_space(part) for part in space.spaces])
        return batch_space(space, self.size) if is_image(space) else space

    def _stacked(self, space: gym.Space[Any], obs: Any, name: str = "") -> Any:
        if isinstance(space, spaces.Dict):
            return {
                key: self._stacked(part, obs[key], f"{name}/{key}")
                for key, part in space.spaces.items()
            }
        if isinstance(space, spaces.Tuple):
            parts = zip(space.spaces, obs, strict=True)
            return tuple(self._stacked(part, x, f"{name}/{i}") for i, (part, x) in enumerate(parts))
        earlier = self._frames.get(name)
        if earlier is None and not is_image(space):
            return obs
        frame = np.asarray(obs, dtype=space.dtype)[None]
        older = np.repeat(frame, self.size - 1, axis=0) if earlier is None else earlier[1:]
        self._frames[name] = np.concatenate([older, frame])
        return self._frames[name]  # the next step creates another array


def stack_frames(env: AnyEnv, size: int, env_id: str) -> AnyEnv:
    """Return an environment whose images are stacks of ``size`` frames."""
    if size == 1:
        return env
    if not any(is_image(leaf) for _, leaf in _leaves(env.observation_space)):
        raise ConfigError(
            f"env_kwargs.frame_stack = {size}: {env_id} has the observation space "
            f"{space_name(env.observation_space)}, which has no images, so leave it out."
        )
    return FrameStack(env, size)


def take_frame_stack(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Separate `frame_stack` from the arguments of an environment."""
    options = dict(kwargs)
    size = options.pop("frame_stack", 1)
    if type(size) is not int or not 1 <= size <= MAX_STACK:
        raise ConfigError(
            f"env_kwargs.frame_stack = {shown(size)}: should be an integer from 1 to {MAX_STACK}."
        )
    return options, size


def is_image(space: gym.Space[Any]) -> bool:
    """Return whether a space is an image: a Box of uint8 or bool with two or three axes."""
    if not isinstance(space, spaces.Box) or space.dtype not in (np.uint8, np.bool_):
        return False
    return len(space.shape) > 1 and Planes.of(space.shape) is not None


def _num_frames(env: AnyEnv) -> int:
    """Return how many frames a stack of images has, 1 if it is unknown."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if layer.observation_space != env.observation_space:
            return 1
        if isinstance(layer, FrameStack):
            return layer.size
        if isinstance(layer, gym.wrappers.FrameStackObservation):
            return int(layer.stack_size)
        layer = layer.env
    return 1


def flatten_observations(env: AnyEnv, env_id: str) -> AnyEnv:
    """Return an environment with flat observations; return one that has them unchanged."""
    entries = read_entries(env.observation_space, env_id, frames=_num_frames(env))
    return FlatObservations(env, entries) if entries else env


def read_entries(space: gym.Space[Any], env_id: str, *, frames: int = 1) -> tuple[Entry, ...]:
    """Return the entries of an observation space; none for a flat Box, which is a vector already.

    ``frames`` is the size of the stacks of images.

    Raises:
        ConfigError: The space has a part that cannot be flattened.
    """
    entries: list[Entry] = []
    offset, whole = 0, space_name(space)
    for name, leaf in _leaves(space):
        entry = _entry(name, leaf, offset, f"{env_id} has the observation space {whole}", frames)
        offset += entry.width
        entries.append(entry)
    if not all(entry.width for entry in entries) or not entries:
        raise ConfigError(
            f"{env_id} has the observation space {space_name(space)}, which has observations of "
            "length 0, but at least one value is needed: return a constant if there is nothing to "
            "observe."
        )
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return ()
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"{env_id} has two observation entries with the name {repeated!r}: rename the keys of "
            "its Dict."
        )
    return tuple(entries)


def _leaves(space: gym.Space[Any], name: str = "") -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yield the spaces inside nested Dicts and Tuples, with their names."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        pairs = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        for key, part in pairs:
            yield from _leaves(part, f"{name}/{key}" if name else str(key))
    else:
        yield name, space


def _values(space: gym.Space[Any], obs: Any) -> Iterator[Any]:
    """Yield the values of an observation in the order of `_leaves`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        pairs = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        for key, part in pairs:
            yield from _values(part, obs[key])
    else:
        yield obs


def _entry(name: str, leaf: gym.Space[Any], offset: int, where: str, frames: int) -> Entry:
    if name:
        where += f" with the entry {name!r}, {space_name(leaf)}"
    shape, dtype = tuple(map(int, leaf.shape or ())), str(leaf.dtype)
    if isinstance(leaf, spaces.Box) and leaf.dtype.kind in "biuf":
        if is_image(leaf):
            stack = frames if shape[0] == frames and Planes.of(shape[1:]) else 1
            high = max(1, int(leaf.high.max()))
            return Entry(name, "image", shape, dtype, offset, frames=stack, high=high)
        return Entry(name, "vector", shape, dtype, offset)
    if isinstance(leaf, spaces.MultiBinary):
        return Entry(name, "multi_binary", shape, dtype, offset)
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        counts = leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec
        choices = tuple(int(count) for count in np.ravel(counts))
        if max(choices) > MAX_CHOICES:
            raise ConfigError(
                f"{where}: a discrete value becomes one input per choice, at most {MAX_CHOICES:,}. "
                f"Encode it as a vector: {_CONVERT}."
            )
        starts = tuple(int(start) for start in np.ravel(leaf.start))
        kind: EntryKind = "discrete" if isinstance(leaf, spaces.Discrete) else "multi_discrete"
        return Entry(name, kind, shape, dtype, offset, choices, starts)
    raise ConfigError(
        f"{where}, which is not supported: observations are Box, Discrete, MultiDiscrete or "
        f"MultiBinary, or a Dict or Tuple of them, so {_CONVERT}."
    )


def own_entries(env: AnyEnv) -> tuple[Entry, ...]:
    """Return the entries of an environment with flattened observations; none for a flat Box."""
    inner = env.env if isinstance(env, GuardedEnv) else env
    return inner.entries if isinstance(inner, FlatObservations) else ()


def own_space(env: AnyEnv) -> gym.Space[Any]:
    """Return the observation space of an environment before it was flattened."""
    inner = env.env if isinstance(env, GuardedEnv) else env
    return (inner.env if isinstance(inner, FlatObservations) else inner).observation_space


def flat_bounds(space: gym.Space[Any]) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest values of the flat vectors of a space."""
    bounds = [_bounds(leaf) for _, leaf in _leaves(space)]
    low, high = (np.concatenate(parts) for parts in zip(*bounds, strict=True))
    return low, high


def _bounds(leaf: gym.Space[Any]) -> tuple[FloatArray, FloatArray]:
    if isinstance(leaf, spaces.Box):
        with np.errstate(over="ignore"):  # beyond float32 means unbounded
            low, high = (np.ravel(bound).astype(np.float32) for bound in (leaf.low, leaf.high))
        return low, high
    ones = np.ones(spaces.flatdim(leaf), dtype=np.float32)
    return 0.0 * ones, ones
