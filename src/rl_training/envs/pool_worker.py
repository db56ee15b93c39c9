"""A process of a `WorkerPool`: it creates environments and steps them in shared memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from rl_training.boundary.terminal import open_standard_streams, print_stderr
from rl_training.envs.contract import ACTION_MASK, AnyEnv
from rl_training.envs.guard import FAILURES
from rl_training.envs.pool_memory import EnvArrays, Layout, receive_memory
from rl_training.envs.state import CaptureError
from rl_training.errors import RLTrainingError
from rl_training.text import error_text

HEADER = struct.Struct("<ccIII")
"""Start of a message: command, type of the actions, group, first environment, and end."""

MAKE, ATTACH, RESET, STEP, STEP_ACTIVE, CALL, CLOSE, EXIT = (
    b"m",
    b"a",
    b"r",
    b"s",
    b"p",
    b"c",
    b"x",
    b"q",
)
NO_TYPE = b" "

DONE = b"."
"""Answer to a command that has no results and caused no errors."""

SPIN_SECONDS = 1e-4
"""How long a process waits actively before it sleeps; waking up takes longer than most steps."""

GRACE_SECONDS = 30
"""How long a worker process continues after SIGTERM, so that the trainer can save its state, and
how long it may take to close its environments."""

COUNTERS = 16
"""Numbers in the counters of one process: two cache lines, one for each direction."""


class Counter:
    """Counts messages in shared memory, so that a receiver can wait for the next one actively.

    A message is counted after it was sent. The counter only tells when to read.
    """

    def __init__(self, counters: Any, place: int) -> None:
        self._counters = memoryview(counters).cast("B").cast("q")
        self._place = place
        self._seen = 0

    def increment(self) -> None:
        """Count a message that was sent."""
        self._counters[self._place] += 1

    def wait(self) -> None:
        """Wait for a message, but only a short time, and let other processes run."""
        counters, place, seen = self._counters, self._place, self._seen
        deadline = time.perf_counter() + SPIN_SECONDS
        while counters[place] <= seen and time.perf_counter() < deadline:
            os.sched_yield()

    def see(self) -> None:
        """Count a message that was received."""
        self._seen += 1


class Failure(NamedTuple):
    """An exception in a worker."""

    error: Exception | None
    """The exception, if it is one of this package."""
    text: str
    trace: str


class Answer(NamedTuple):
    """The results of a command that are not None, and its errors, by environment."""

    results: dict[int, Any]
    errors: dict[int, Failure]


def _failure(error: BaseException) -> Failure:
    own = error if isinstance(error, RLTrainingError | CaptureError) else None
    try:
        ForkingPickler.loads(ForkingPickler.dumps(own))
    except Exception:  # an attribute of the error may be any object
        own = None
    return Failure(own, error_text(error), traceback.format_exc())


def _for_each(indices: Iterable[int], function: Callable[[int], Any]) -> Answer:
    """Call a function for several environments; one that fails does not affect the others."""
    answer = Answer({}, {})
    for index in indices:
        try:
            result = function(index)
        except FAILURES as error:
            answer.errors[index] = _failure(error)
        else:
            if result is not None:
                answer.results[index] = result
    return answer


@dataclass
class _Group:
    """The environments of one `PooledEnvs` that are in this process."""

    autoreset: bool = True
    envs: dict[int, AnyEnv] = field(default_factory=dict)
    arrays: EnvArrays | None = None
    actions: dict[bytes, np.ndarray[Any, Any]] = field(default_factory=dict)
    """The actions by the code of their type."""

    def reset(self, index: int, seed: int | None, options: Any) -> dict[str, Any] | None:
        """Reset an environment; return its action mask, if it has one."""
        assert self.arrays is not None
        obs, info = self.envs[index].reset(seed=seed, options=options)
        self.arrays.observations[index] = obs
        return {ACTION_MASK: info[ACTION_MASK]} if ACTION_MASK in info else None

    def step(self, index: int, actions: np.ndarray[Any, Any]) -> dict[str, Any] | None:
        """Step an environment; return its last info and action mask, if there are any."""
        arrays, env, kept = self.arrays, self.envs[index], None
        assert arrays is not None
        obs, reward, terminated, truncated, info = env.step(actions[index].copy())
        if terminated or truncated:
            arrays.final_observations[index] = obs
            if info:
                kept = {"final_info": info}
            if self.autoreset:
                obs, info = env.reset()
        if ACTION_MASK in info:
            kept = {**(kept or {}), ACTION_MASK: info[ACTION_MASK]}
        arrays.observations[index] = obs
        arrays.rewards[index] = reward
        arrays.terminations[index] = terminated
        arrays.truncations[index] = truncated
        return kept

    def typed_actions(self, code: bytes) -> np.ndarray[Any, Any]:
        """Return the actions as numbers of a type."""
        if code not in self.actions:
            assert self.arrays is not None
            self.actions[code] = self.arrays.typed_actions(code.decode())
        return self.actions[code]

    def call(self, index: int, name: str, args: Any, kwargs: Any) -> Any:
        """Call a method of an environment or return an attribute."""
        value = self.envs[index].get_wrapper_attr(name)
        return value(*args, **kwargs) if callable(value) else value

    def close(self, indices: Iterable[int]) -> None:
        """Close environments; a failure only warns."""
        for index in indices:
            env = self.envs.pop(index, None)
            try:
                if env is not None:
                    env.close()
            except FAILURES as error:
                print_stderr(f"Warning: close() failed with {error_text(error)}.")


class _Server:
    """Receives commands and answers each of them, until the trainer ends."""

    def __init__(
        self, connection: Any, received: Counter, sent: Counter, is_spinning: bool
    ) -> None:
        self._connection = connection
        self._received, self._sent = received, sent
        self._is_spinning = is_spinning
        self._groups: dict[int, _Group] = {}

    def run(self) -> None:
        try:
            while True:
                if self._is_spinning:
                    self._received.wait()
                message = self._connection.recv_bytes()
                self._received.see()
                kind, code, group, start, stop = HEADER.unpack_from(message)
                if kind == EXIT:
                    return
                self._send(self._answer(kind, code, group, range(start, stop), message))
        except (EOFError, OSError):
            return  # the trainer has ended
        finally:
            # If the trainer has ended, nobody would kill a process whose close() never returns.
            _end_later()
            for each in self._groups.values():
                each.close(list(each.envs))

    def _answer(
        self, kind: bytes, code: bytes, number: int, indices: range, message: bytes
    ) -> Answer:
        group = self._groups.get(number)
        if kind == MAKE:
            group = self._groups[number] = _Group()
        if group is None:
            closed = Failure(None, "a call after close()", "")
            return Answer({}, {} if kind == CLOSE else dict.fromkeys(indices, closed))
        if kind in (STEP, STEP_ACTIVE):
            return self._step(group, code, indices, only_active=kind == STEP_ACTIVE)
        if kind == CLOSE:
            group.close(indices)
            if not group.envs:
                del self._groups[number]  # and its memory
            return Answer({}, {})
        try:
            values = ForkingPickler.loads(message[HEADER.size :])
        except Exception as error:  # the module of a function may be missing in this process
            return Answer({}, {indices.start: _failure(error)})
        if kind == MAKE:
            return self._make(group, indices, *values)
        if kind == ATTACH:
            return _for_each(indices[:1], lambda _: self._attach(group, values))
        if kind == RESET:
            seeds, options = values
            return _for_each(
                indices, lambda index: group.reset(index, seeds[index - indices.start], options)
            )
        return _for_each(indices, lambda index: group.call(index, *values))

    def _make(
        self,
        group: _Group,
        indices: range,
        makers: list[CloudpickleWrapper[AnyEnv]],
        autoreset: bool,
    ) -> Answer:
        """Create environments; return their spaces."""
        group.autoreset = autoreset

        def make(index: int) -> Any:
            env = group.envs[index] = makers[index - indices.start]()
            spaces: Any = (env.observation_space, env.action_space)
            return CloudpickleWrapper(spaces)

        return _for_each(indices, make)

    def _attach(self, group: _Group, layout: Layout) -> None:
        group.arrays = EnvArrays(layout, receive_memory(self._connection))

    def _step(self, group: _Group, code: bytes, indices: range, *, only_active: bool) -> Answer:
        actions = group.typed_actions(code)
        chosen: Iterable[int] = indices
        if only_active:
            assert group.arrays is not None
            chosen = [index for index in indices if group.arrays.active[index]]
        return _for_each(chosen, lambda index: group.step(index, actions))

    def _send(self, answer: Answer) -> None:
        if not answer.results and not answer.errors:
            self._connection.send_bytes(DONE)
        else:
            self._connection.send_bytes(_serialized(answer))
        self._sent.increment()


def _serialized(answer: Answer) -> Any:
    """Return an answer as bytes; results that cannot be sent become errors."""
    try:
        return ForkingPickler.dumps(tuple(answer))
    except Exception:  # an object of the user may raise anything
        failed = _for_each(
            answer.results, lambda index: ForkingPickler.dumps(answer.results[index])
        ).errors
        errors = answer.errors | failed
        results = {i: result for i, result in answer.results.items() if i not in errors}
        return ForkingPickler.dumps((results, errors))


def _prepare(core: int | None) -> None:
    open_standard_streams()  # a failed print in the environment must not end the worker
    # Ctrl-C and a scheduler's SIGTERM reach the whole process group, but only the trainer
    # decides when to stop. If it never does, its workers end after the grace period.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "alarm"):  # not available on Windows
        signal.signal(signal.SIGTERM, lambda *_: _end_later())
    if core is not None and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # the core was taken away from this process
            os.sched_setaffinity(0, {core})


def _end_later() -> None:
    """End this process after the grace period."""
    if hasattr(signal, "alarm"):
        signal.alarm(GRACE_SECONDS)


def counters_of(counters: Any, worker: int) -> tuple[Counter, Counter]:
    """Return the counters of the messages to a worker and of those from it."""
    first = COUNTERS * worker
    return Counter(counters, first), Counter(counters, first + COUNTERS // 2)


def serve(connection: Any, counters: Any, worker: int, is_spinning: bool, core: int | None) -> None:
    """Run a worker process until its connection to the trainer closes."""
    assert multiprocessing.parent_process() is not None
    _prepare(core)
    _Server(connection, *counters_of(counters, worker), is_spinning).run()
