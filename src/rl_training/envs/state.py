"""Capture and restore of a running environment, wrappers, generators and simulator included.

The state is plain data (numbers, strings, lists, arrays): restoring sets values, runs nothing.
"""

from __future__ import annotations

from types import FunctionType, MethodType, ModuleType
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

_CONSTANT = frozenset(
    {"env", "spec", "metadata", "render_mode", "mujoco_renderer", "model", "data"}
    | {"_cached_spec", "_saved_kwargs", "_transform", "_metadata", "screen", "clock", "surf"}
    | {"fullpath", "tmp_xml_file_path", "maze", "_model_names"}
)
"""Attributes that the constructor sets and stepping leaves alone, or that only drawing uses."""

_CONSTANT_TYPES = (gym.Space, gym.Env, type, FunctionType, MethodType, ModuleType)


class CaptureError(Exception):
    """The environment holds something that cannot be saved as plain data; names it."""


def is_plain(value: Any) -> bool:
    """Whether a value is data that a checkpoint can hold."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return False


def copy_plain(value: Any) -> Any:
    """A copy that later steps of the environment cannot write into."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copy_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copy_plain(item) for item in value)
    return value


def _layers(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    """The environment from the outermost wrapper to the core, and those inside the core."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    inner = [value for value in vars(layers[-1]).values() if isinstance(value, gym.Env)]
    return layers + [layer for core in inner for layer in _layers(core)]


def _capture_layer(layer: gym.Env[Any, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    generators: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if name in _CONSTANT or isinstance(value, _CONSTANT_TYPES):
            continue  # an environment inside this one is a layer of its own
        if isinstance(value, np.random.Generator):
            generators[name] = value.bit_generator.state
        elif is_plain(value):
            attributes[name] = copy_plain(value)
        else:
            raise CaptureError(
                f"{type(layer).__name__}.{name} is a {type(value).__name__}, which cannot be saved"
            )
    return {"class": type(layer).__name__, "attributes": attributes, "generators": generators}


def _can_replace(present: Any, saved: Any) -> bool:
    """Whether a saved value can be what the attribute holds at another instant."""
    if present is None or saved is None:
        return True
    if callable(present) or isinstance(present, _CONSTANT_TYPES):
        return False
    return all(isinstance(present, kind) == isinstance(saved, kind) for kind in (str, dict))


def _restore_layer(layer: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    if state["class"] != type(layer).__name__:
        raise CaptureError(
            f"the saved environment has a {state['class']} where this one has a "
            f"{type(layer).__name__}"
        )
    own = vars(layer)
    for name, value in state["attributes"].items():
        if name in _CONSTANT or not _can_replace(getattr(layer, name, None), value):
            raise CaptureError(f"{state['class']}.{name} is not part of a running state")
        own[name] = copy_plain(value)
    for name, generator_state in state["generators"].items():
        generator = np.random.Generator(np.random.PCG64())
        generator.bit_generator.state = generator_state
        own[name] = generator


def _simulator(env: gym.Env[Any, Any]) -> tuple[Any, Any] | None:
    """MuJoCo's model and data, where the core environment has them."""
    core = env.unwrapped
    model, data = getattr(core, "model", None), getattr(core, "data", None)
    if type(model).__name__ == "MjModel" and type(data).__name__ == "MjData":
        return model, data
    if model is not None or data is not None:
        raise CaptureError(f"{type(core).__name__} has a model or data that is not MuJoCo's")
    return None


def _capture_simulator(model: Any, data: Any) -> dict[str, Any]:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, integration, kind)
    # Ant and Humanoid read body positions before they step: those must not be recomputed.
    return {
        "integration": integration,
        "xpos": np.array(data.xpos),
        "xipos": np.array(data.xipos),
    }


def _restore_simulator(model: Any, data: Any, state: dict[str, Any]) -> None:
    import mujoco

    mujoco.mj_setState(model, data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    data.xpos[:] = state["xpos"]
    data.xipos[:] = state["xipos"]


def capture_env(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """The whole running state as plain data.

    Raises:
        CaptureError: Something in the environment is not plain data.
    """
    simulator = _simulator(env)
    return {
        "layers": [_capture_layer(layer) for layer in _layers(env)],
        "simulator": _capture_simulator(*simulator) if simulator else None,
    }


def restore_env(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    """Put an environment of the same make-up into a captured state."""
    layers = _layers(env)
    if len(layers) != len(state["layers"]):
        raise CaptureError(
            f"the saved environment has {len(state['layers'])} layers, this one {len(layers)}"
        )
    for layer, layer_state in zip(layers, state["layers"], strict=True):
        _restore_layer(layer, layer_state)
    simulator = _simulator(env)
    if (simulator is None) != (state["simulator"] is None):
        raise CaptureError("the saved environment and this one differ in their simulator")
    if simulator:
        _restore_simulator(*simulator, state["simulator"])


class CapturableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper: its methods are called across a vector environment's processes."""

    def __init__(self, env: gym.Env[Any, Any], index: int = 0) -> None:
        super().__init__(env)
        self.index = index

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step with an empty info: training uses none, and a vector environment copies it all."""
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward, terminated, truncated, {}

    def capture(self) -> dict[str, Any]:
        """The state, or ``{"error": reason}`` where it cannot be had."""
        try:
            return capture_env(self.env)
        except CaptureError as error:
            return {"error": str(error)}

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Take this environment's state out of the list of all."""
        restore_env(self.env, states[self.index])
