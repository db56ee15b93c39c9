"""Capture and restore a running environment, with its wrappers, generators and simulator.

The state is plain data (numbers, strings, lists, arrays). Restoring it sets values and runs no
code from the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorWrapper

from rl_training.boundary import json_codec
from rl_training.boundary.values import describe_array
from rl_training.envs.contract import ACTION_MASK, AnyEnv, AnyVectorEnv
from rl_training.envs.guard import GuardedEnv, Isolation
from rl_training.envs.observations import FlatObservations
from rl_training.envs.reward_wrappers import OWN_RETURN, OwnReturnWrapper
from rl_training.errors import EnvError
from rl_training.text import error_text, one_line, shown

_CONSTANT = frozenset(
    {"env", "spec", "metadata", "render_mode", "mujoco_renderer", "model", "data"}
    | {"_cached_spec", "_saved_kwargs", "_transform", "_metadata"}
    | {"fullpath", "tmp_xml_file_path", "_model_names"}
)
"""Attributes that the constructor sets and stepping does not change."""

_RENDERING = frozenset({"screen", "clock", "surf", "maze"})
"""Attributes that are only used for rendering, unless they are numbers or arrays."""

_CONSTANT_TYPES = (gym.Space, gym.Env, type, FunctionType, MethodType, ModuleType)

_UNCHANGED = frozenset({"OrderEnforcing", "PassiveEnvChecker"})
"""Wrappers whose state is the same after every reset, so that a state fits with or without them."""

_SHARED, _ITEMS, _GENERATOR, _DEQUE = "@shared", "@items", "@generator", "@deque"
"""Tags of a reference to a shared value, a dict with its order, a generator, and a deque."""


MAX_DEPTH = 100
"""Maximum nesting of lists, dicts and environments."""


class CaptureError(Exception):
    """The environment cannot be saved as plain data, or a saved state does not fit it."""


class _KindError(CaptureError):
    """An array of floats was saved as an array of another type."""


def _inexact(problem: str) -> CaptureError:
    return CaptureError(f"{problem}, which cannot be saved exactly")


def wrappers_and_core(env: AnyEnv | AnyVectorEnv) -> list[Any]:
    """Return the layers of an environment, from the outermost wrapper to the core."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper | VectorWrapper):
        layers.append(layers[-1].env)
    return layers


def _layers(env: AnyEnv, around: tuple[AnyEnv, ...] = ()) -> list[AnyEnv]:
    """Return the layers that may have state, and those of environments inside the core."""
    stateless = GuardedEnv | FlatObservations
    layers = [layer for layer in wrappers_and_core(env) if not isinstance(layer, stateless)]
    if len(around) > MAX_DEPTH or any(layer is outer for layer in layers for outer in around):
        raise _inexact(f"{type(env.unwrapped).__name__} contains itself")
    inner = [value for value in vars(layers[-1]).values() if isinstance(value, gym.Env)]
    return layers + [layer for core in inner for layer in _layers(core, (*around, *layers))]


def _is_number(value: Any) -> bool:
    """Return whether a value has exactly a plain scalar type; a subclass would be lost."""
    if isinstance(value, np.generic):
        return type(value) is value.dtype.type and value.dtype.kind in "biuf"
    return value is None or type(value) in (bool, int, float, str)


def _copied(value: Any, copy_item: Callable[[Any], Any]) -> Any:
    """Copy an array, a list or a tuple; return any other value unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)(copy_item(item) for item in value)
    return value


class _Capture:
    """Copies the values of an environment as plain data; shared objects stay shared."""

    def __init__(self) -> None:
        self.shared: list[Any] = []
        """Values that are referenced more than once."""
        self._visits: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._views: dict[int, list[np.ndarray[Any, Any]]] = {}

    def examine(self, value: Any, name: str, depth: int = 0) -> None:
        """Reject values that cannot be saved exactly; count references to the others."""
        if _is_number(value):
            return
        if depth > MAX_DEPTH:
            raise _inexact(f"{name} has more than {MAX_DEPTH} levels of lists or dicts")
        is_generator = isinstance(value, np.random.Generator) and depth == 0
        if type(value) in (np.ndarray, list, dict, deque) or is_generator:
            self._visits[id(value)] = self._visits.get(id(value), 0) + 1
            if self._visits[id(value)] > 1:
                return
        if type(value) is np.ndarray and value.dtype.kind in "biuf":
            self._examine_memory(value, name)
        elif type(value) in (list, tuple, deque) or _is_plain_dict(value):
            for part in value.values() if type(value) is dict else value:
                self.examine(part, name, depth + 1)
        elif not is_generator or type(value.bit_generator) is not np.random.PCG64:
            raise _inexact(f"{name} {'contains' if depth else 'is'} a {_kind_in_words(value)}")

    def _examine_memory(self, array: np.ndarray[Any, Any], name: str) -> None:
        """Reject an array that shares memory, since a copy would not."""
        owner: Any = array
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        if not isinstance(owner, np.ndarray | bytes):
            kind = type(owner).__name__
            raise _inexact(f"{name} is a view of memory that belongs to a {kind}")
        views = self._views.setdefault(id(owner), [])
        if any(np.may_share_memory(array, other) for other in views):
            raise _inexact(f"{name} shares its memory with another array")
        views.append(array)

    def copy(self, value: Any) -> Any:
        """Return a copy that later steps cannot modify, or a reference to a shared value."""
        if self._visits.get(id(value), 0) < 2:
            return self._copy_alone(value)
        if id(value) not in self._numbers:
            number = self._numbers[id(value)] = len(self.shared)
            self.shared.append(None)
            self.shared[number] = self._copy_alone(value)
        number = self._numbers[id(value)]
        if self.shared[number] is None:
            raise _inexact(f"a {type(value).__name__} contains itself")
        return {_SHARED: number}

    def _copy_alone(self, value: Any) -> Any:
        if isinstance(value, np.random.Generator):
            return {_GENERATOR: value.bit_generator.state}
        if isinstance(value, deque):
            return {_DEQUE: [value.maxlen, [self.copy(item) for item in value]]}
        if not isinstance(value, dict):
            return _copied(value, self.copy)
        items = [(key, self.copy(item)) for key, item in value.items()]
        # A checkpoint file sorts keys, but an environment may depend on the order of its dict.
        return dict(items) if list(value) == sorted(value) else {_ITEMS: items}


def _is_plain_dict(value: Any) -> bool:
    return type(value) is dict and all(type(key) is str and key[:1] != "@" for key in value)


def _kind_in_words(value: Any) -> str:
    if isinstance(value, np.random.Generator):
        return f"random generator that uses {type(value.bit_generator).__name__}"
    if type(value) is np.ndarray:
        return f"NumPy array of {value.dtype}"
    return (
        "dict with keys that are not plain strings" if type(value) is dict else type(value).__name__
    )


class _Restore:
    """Reverses `_Capture`; each shared value is created once."""

    def __init__(self, shared: list[Any]) -> None:
        self._shared = shared
        self._made: dict[int, Any] = {}
        self._making: set[int] = set()

    def copy(self, value: Any) -> Any:
        """Return the value that a saved value represents."""
        if not isinstance(value, dict):
            return _copied(value, self.copy)
        if set(value) == {_SHARED}:
            return self._shared_value(value[_SHARED])
        if set(value) == {_GENERATOR}:
            return _generator(value[_GENERATOR])
        if set(value) == {_DEQUE}:
            most, items = value[_DEQUE]
            return deque((self.copy(item) for item in items), maxlen=most)
        items = value[_ITEMS] if set(value) == {_ITEMS} else value.items()
        return {str(key): self.copy(item) for key, item in items}

    def _shared_value(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._shared):
            raise CaptureError(f"the saved environment has no shared value {shown(number)}")
        if number not in self._made:
            if number in self._making:
                raise CaptureError(
                    f"shared value {number} of the saved environment contains itself"
                )
            self._making.add(number)
            self._made[number] = self.copy(self._shared[number])
        return self._made[number]


def _generator(state: Any) -> np.random.Generator:
    """Return a generator in a saved state; reject a state that PCG64 cannot have."""
    generator = np.random.Generator(np.random.PCG64())
    try:
        generator.bit_generator.state = state
        # Compared as text, because True equals 1. NumPy does not check the last two numbers.
        is_whole = (
            json_codec.dumps(generator.bit_generator.state) == json_codec.dumps(state)
            and state["state"]["inc"] % 2 == 1
            and state["has_uint32"] in (0, 1)
        )
    except Exception:  # NumPy has no common exception class for invalid states
        is_whole = False
    if not is_whole:
        raise CaptureError("a random generator of the saved environment is damaged")
    return generator


def _changing_attributes(layer: AnyEnv) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that stepping may change."""
    for name, value in vars(layer).items():
        if name in _CONSTANT or isinstance(value, _CONSTANT_TYPES):
            continue  # an environment inside this one is a separate layer
        plain = _is_number(value) or type(value) in (np.ndarray, list, tuple, dict)
        if name not in _RENDERING or plain:
            yield name, value


def _capture_layer(layer: AnyEnv, capture: _Capture) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    generators: dict[str, Any] = {}
    for name, value in _changing_attributes(layer):
        copied = capture.copy(value)
        if isinstance(value, np.random.Generator):
            generators[name] = copied.get(_GENERATOR, copied)
        else:
            attributes[name] = copied
    return {"class": type(layer).__name__, "attributes": attributes, "generators": generators}


def _can_replace(current: Any, saved: Any) -> bool:
    """Return whether a saved value is a possible value of the attribute."""
    if current is None or saved is None:
        return True
    if callable(current) or isinstance(current, _CONSTANT_TYPES):
        return False
    kinds = (str, dict, deque, np.random.Generator)
    return all(isinstance(current, kind) == isinstance(saved, kind) for kind in kinds)


def _restore_layer(layer: AnyEnv, state: dict[str, Any], restore: _Restore) -> None:
    if state["class"] != type(layer).__name__:
        raise CaptureError(
            f"the saved environment has a {state['class']} where this one has a "
            f"{type(layer).__name__}"
        )
    own = vars(layer)
    values = {name: restore.copy(saved) for name, saved in state["attributes"].items()}
    for name, saved in state["generators"].items():
        if name in values:
            raise CaptureError(f"{state['class']}.{one_line(name)} is saved twice")
        shared = isinstance(saved, dict) and set(saved) == {_SHARED}
        values[name] = restore.copy(saved) if shared else _generator(saved)
    for name, value in values.items():
        # An attribute that does not exist yet may be one that a later step creates.
        fixed = name in _CONSTANT or name.startswith("__")
        if fixed or not _can_replace(getattr(layer, name, None), value):
            raise CaptureError(f"{state['class']}.{one_line(name)} is not part of the state")
        arrays = isinstance(own.get(name), np.ndarray) and isinstance(value, np.ndarray)
        if arrays and own[name].dtype.kind == "f" != value.dtype.kind:
            raise _KindError(f"{state['class']}.{one_line(name)} is {value.dtype}, not float")
        own[name] = value


def _simulator(env: AnyEnv) -> tuple[Any, Any] | None:
    """Return MuJoCo's model and data; None if the core environment has none."""
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
    # Ant and Humanoid read body positions before they step, so these must not be recomputed.
    return {"integration": integration, "xpos": np.array(data.xpos), "xipos": np.array(data.xipos)}


def _restore_simulator(model: Any, data: Any, state: dict[str, Any]) -> None:
    import mujoco

    for name, current in _capture_simulator(model, data).items():
        saved, wanted = describe_array(state[name]), describe_array(current)
        if saved != wanted:
            raise CaptureError(
                f"{name} of the simulator is {saved} in the saved environment, but {wanted} in "
                "this one"
            )
    mujoco.mj_setState(model, data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    data.xpos[:] = state["xpos"]
    data.xipos[:] = state["xipos"]


def capture_env(env: AnyEnv) -> dict[str, Any]:
    """Return the complete state as plain data.

    Raises:
        CaptureError: The state cannot be saved exactly.
    """
    simulator = _simulator(env)
    layers, capture = _layers(env), _Capture()
    for layer in layers:
        for name, value in _changing_attributes(layer):
            capture.examine(value, f"{type(layer).__name__}.{name}")
    return {
        "layers": [_capture_layer(layer, capture) for layer in layers],
        "shared": capture.shared,
        "simulator": _capture_simulator(*simulator) if simulator else None,
    }


def restore_env(env: AnyEnv, state: dict[str, Any]) -> None:
    """Restore a captured state into an environment with the same layers."""
    layers, saved = _layers(env), state["layers"]
    if [type(layer).__name__ for layer in layers] != [layer["class"] for layer in saved]:
        layers = [layer for layer in layers if type(layer).__name__ not in _UNCHANGED]
        saved = [layer for layer in saved if layer["class"] not in _UNCHANGED]
    if len(layers) != len(saved):
        raise CaptureError(
            f"the saved environment has {len(saved)} layers, but this one has {len(layers)}"
        )
    restore = _Restore(state.get("shared", []))
    for layer, layer_state in zip(layers, saved, strict=True):
        _restore_layer(layer, layer_state, restore)
    simulator = _simulator(env)
    if (simulator is None) != (state["simulator"] is None):
        raise CaptureError("the saved environment and this one use different simulators")
    if simulator:
        _restore_simulator(*simulator, state["simulator"])


class CapturableEnv(GuardedEnv):
    """The outermost wrapper, whose methods a vector environment calls across processes."""

    def __init__(
        self,
        env: AnyEnv,
        index: int = 0,
        name: str = "",
        isolation: Isolation | None = None,
        *,
        action_masks: bool = False,
        keep_open: bool = False,
    ) -> None:
        # An environment may use the same key; it is ours only if our wrapper is present.
        transformed = any(isinstance(x, OwnReturnWrapper) for x in wrappers_and_core(env))
        own_return = (OWN_RETURN,) if transformed else ()
        masks = (ACTION_MASK,) if action_masks else ()
        super().__init__(env, name, isolation, kept=(*own_return, *masks), keep_open=keep_open)
        self.index = index

    def latest_info(self) -> dict[str, Any]:
        """Return the info of the latest step, which may be the last one of an episode."""
        return dict(self.last_info)

    def capture(self) -> dict[str, Any]:
        """Return the state, or ``{"error": reason}`` if it cannot be captured."""
        try:
            return capture_env(self.env)
        except CaptureError as error:
            return {"error": str(error)}
        except Exception as error:  # reading an attribute of the environment may raise anything
            return {"error": f"its attributes cannot be read ({error_text(error)})"}

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Restore this environment from the list of all states."""
        try:
            try:
                restore_env(self.env, states[self.index])
            except _KindError:
                # A step may replace an array of floats with one of another type, such as flags.
                _, info = self.reset()
                mask = info[ACTION_MASK].astype(np.int8) if ACTION_MASK in info else None
                self.step(deepcopy(self.action_space).sample(mask))
                restore_env(self.env, states[self.index])
        except (CaptureError, EnvError):
            raise
        except Exception as error:  # a forged state may raise anything
            raise CaptureError(f"the saved environment is damaged ({error_text(error)})") from error
