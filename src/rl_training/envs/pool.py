"""Environments in worker processes, which may die.

A `WorkerPool` owns the processes. `PooledEnvs` are environments in them: actions, observations,
rewards and flags are in shared memory (`pool_memory`), and a step costs one short message to and
from each process (`pool_worker`). Infos are only sent if there are any.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_space, clear_mpi_env_vars

from rl_training.envs import pool_worker
from rl_training.envs.contract import ACTION_MASK, AnyEnv
from rl_training.envs.pool_memory import ACTION_BYTES, EnvArrays, Layout, SharedMemory
from rl_training.envs.pool_worker import COUNTERS, DONE, HEADER, NO_TYPE, Failure, counters_of
from rl_training.errors import EnvError
from rl_training.text import error_text
from rl_training.types import BoolArray

CLOSE_SECONDS = 10.0
"""How long workers may take to close their environments before they are killed."""

Maker = Callable[[], AnyEnv]
StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]


class WorkerTraceback(Exception):  # noqa: N818 - the text of an error in another process
    """The traceback of an error in a worker, used as the cause of the error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Request:
    """A command to a worker for the environments from ``start`` to ``stop``, and its answer."""

    def __init__(
        self, worker: _Worker, start: int, stop: int, active: BoolArray | None = None
    ) -> None:
        self.worker = worker
        self.start, self.stop = start, stop
        self.active = active
        """Which of the environments take the step; all of them if it is None."""
        self.is_answered = False
        self.results: dict[int, Any] = {}
        self.errors: dict[int, Failure] = {}


class _Worker:
    """A worker process, as the trainer sees it.

    Only the process has the other end of the connection, which breaks as soon as it ends.
    """

    def __init__(
        self, context: Any, index: int, counters: Any, core: int | None, spin: bool
    ) -> None:
        self._sent, self._received = counters_of(counters, index)
        self._is_spinning = spin
        self._pending: deque[_Request] = deque()
        self._has_answered = False
        self.is_lost = False
        """Whether the process has ended."""
        self.connection, other_end = context.Pipe()
        self.process = context.Process(
            target=pool_worker.serve,
            name=f"Worker-{index}",
            args=(other_end, counters, index, spin, core),
            daemon=True,
        )
        self.process.start()
        other_end.close()

    def send(self, request: _Request, header: bytes, values: Any = None) -> None:
        """Send a command; if the process has ended, waiting for the answer raises the error."""
        message: Any = header
        if values is not None:
            # Both sides would wait forever if a worker sent a long answer at the same time.
            while self._pending and not self.is_lost:
                self._receive()
            message = header + ForkingPickler.dumps(values)
        try:
            self.connection.send_bytes(message)
        except OSError:
            self.is_lost = True
            return
        self._sent.increment()
        self._pending.append(request)

    def send_memory(self, memory: SharedMemory) -> None:
        """Send the memory that the last command announced."""
        if not self.is_lost:
            with suppress(ConnectionError, RuntimeError):  # the process has ended
                memory.send(self.connection, self.process.pid)

    def wait(self, request: _Request, whose: str) -> None:
        """Wait for the answer to a request.

        Raises:
            EnvError: The process has ended.
        """
        while not request.is_answered:
            if not self.is_lost:
                self._receive()
            if self.is_lost and not request.is_answered:
                raise self._died(whose)

    def wait_until(self, request: _Request, deadline: float) -> bool:
        """Wait for an answer or the end of the process; return False on a timeout."""
        while not request.is_answered and not self.is_lost:
            try:
                if not self.connection.poll(max(0.0, deadline - time.monotonic())):
                    return False
            except OSError:
                self.is_lost = True
            else:
                self._receive()
        return True

    def _receive(self) -> None:
        """Receive one answer, which belongs to the oldest request."""
        try:
            if self._is_spinning:
                self._received.wait()
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            self.is_lost = True
            return
        self._received.see()
        self._has_answered = True
        request = self._pending.popleft()
        request.is_answered = True
        if message == DONE:
            return
        try:
            request.results, request.errors = ForkingPickler.loads(message)
        except Exception as error:  # an object of the user may raise anything
            failure = Failure(None, error_text(error), "")  # the results of all are lost
            request.errors = dict.fromkeys(range(request.start, request.stop), failure)

    def _died(self, whose: str) -> EnvError:
        self.process.join(1.0)
        code, reason = self.process.exitcode, "stopped responding"
        if code is not None and code < 0:
            known = -code in set(signal.Signals)
            reason = f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
            if -code == getattr(signal, "SIGKILL", None):
                reason += ", which may mean that the system ran out of memory"
        elif code is not None:
            reason = f"ended with exit code {code}"
        advice = "resume the run to continue from its last checkpoint"
        if not self._has_answered and code == 1:
            advice = "a script that starts processes needs an if __name__ == '__main__' guard"
        return EnvError(f"{whose} {reason}; {advice}")

    def has_died(self) -> bool:
        """Return whether the process has ended; not known while it owes an answer."""
        if not self.is_lost and not self._pending:
            try:
                self.is_lost = self.connection.poll()  # an idle process sends nothing
            except OSError:
                self.is_lost = True
        return self.is_lost

    def ask_to_exit(self) -> None:
        """Ask the process to close its environments and end, after its current command."""
        with suppress(OSError):  # it has already ended
            self.connection.send_bytes(HEADER.pack(pool_worker.EXIT, NO_TYPE, 0, 0, 0))
            self._sent.increment()

    def has_ended(self, deadline: float) -> bool:
        """Wait until the process ends, which breaks the connection; return False on a timeout."""
        try:
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                self.connection.recv_bytes()  # discard answers
        except (EOFError, OSError):
            return True
        return False

    def kill(self) -> None:
        """End the process at once."""
        if self.process.pid is None:
            return
        # Workers ignore SIGTERM for a while; Windows has no SIGKILL and always terminates.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def _available_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _close_connections(connections: list[Any]) -> None:
    for connection in connections:
        connection.close()


class WorkerPool:
    """Processes in which environments step; each process can have many.

    Only one thread at a time may use a pool and its environments.

    Args:
        processes: Number of processes.
        pin: Whether to bind each process to one core, if this process may use more cores than
            that. The first core is left to this process.
    """

    def __init__(self, processes: int, *, pin: bool = False) -> None:
        # No fork: the parent has threads, and forked siblings would keep the pipes of a killed
        # parent open.
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        cores = _available_cores()
        has_free_core = len(cores) > processes
        own: list[int | None] = [None] * processes
        if pin and has_free_core:
            own = list(cores[1 : processes + 1])
        spin = has_free_core and hasattr(os, "sched_yield")
        counters = context.RawArray("q", COUNTERS * processes)
        self.workers: list[_Worker] = []
        self._groups = 0
        self._is_closed = False
        try:
            with clear_mpi_env_vars():
                for index, core in enumerate(own):
                    self.workers.append(_Worker(context, index, counters, core, spin))
        except BaseException:
            self.close()
            raise
        # When this process ends without closing the pool, its workers end before they are awaited.
        connections = [worker.connection for worker in self.workers]
        self._finalizer = Finalize(self, _close_connections, (connections,), exitpriority=10)

    @property
    def processes(self) -> list[Any]:
        """The worker processes."""
        return [worker.process for worker in self.workers]

    def envs(
        self, makers: Sequence[Maker], names: Sequence[str], *, autoreset: bool = True
    ) -> PooledEnvs:
        """Create environments, distributed in order over the processes that have not ended.

        Args:
            makers: Functions that create one environment each; they are sent to the processes.
            names: Names of the environments for error messages.
            autoreset: Whether a step resets an environment whose episode ended. Without it, an
                environment must be reset before its next step.
        """
        number, self._groups = self._groups, self._groups + 1
        workers = [worker for worker in self.workers if not worker.has_died()]
        if not workers:
            raise EnvError("all worker processes have ended; resume the run to start new ones")
        count = len(makers)
        ends = [-(-count * (index + 1) // len(workers)) for index in range(len(workers))]
        parts = [
            _Part(worker, start, stop)
            for worker, start, stop in zip(workers, [0, *ends[:-1]], ends, strict=True)
            if start < stop
        ]
        group = _Group(self, number, names, parts)
        try:
            group.create(makers, autoreset)
        except BaseException:
            group.close(0, count)
            raise
        return PooledEnvs(group, 0, count)

    def close(self) -> None:
        """Ask the workers to close their environments; kill those that take too long.

        A busy worker reads the message after its current call. The state of the processes is not
        queried, since the server that forked them may have died from the same signal as this run.
        """
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers:
            worker.ask_to_exit()
        for worker in self.workers:
            if not worker.has_ended(deadline):
                worker.kill()
            worker.is_lost = True
            worker.connection.close()
        for worker in self.workers:
            worker.process.join(1.0)


class _Part(NamedTuple):
    """A range of environments that are in the same process."""

    worker: _Worker
    start: int
    stop: int


class _Group:
    """The environments of one call of `WorkerPool.envs`."""

    def __init__(
        self, pool: WorkerPool, number: int, names: Sequence[str], parts: list[_Part]
    ) -> None:
        self._pool = pool  # without references, its workers would end
        self.number = number
        self._names = names
        self._parts = parts
        self.steps: list[_Request | None] = [None] * len(names)
        """The latest step of each environment."""
        self.arrays: EnvArrays
        self.spaces: tuple[Any, Any]

    def parts(self, start: int, stop: int) -> Iterator[_Part]:
        """Yield the ranges of a range of environments in each process."""
        for worker, first, end in self._parts:
            if max(first, start) < min(end, stop):
                yield _Part(worker, max(first, start), min(end, stop))

    def create(self, makers: Sequence[Maker], autoreset: bool) -> None:
        """Create the environments, then the arrays for them."""

        def wrapped(start: int, stop: int) -> Any:
            return [CloudpickleWrapper(maker) for maker in makers[start:stop]], autoreset

        spaces = self.ask(pool_worker.MAKE, 0, len(makers), wrapped)
        self.spaces = spaces[0].fn
        for index, other in spaces.items():
            if other.fn != self.spaces:
                raise EnvError(
                    f"{self._names[index]} has other spaces than {self._names[0]}, but "
                    "environments that step together need equal spaces"
                )
        observations, actions = self.spaces
        obs_type = np.dtype(observations.dtype).str
        layout = Layout(len(makers), observations.shape, obs_type, actions.shape)
        memory = SharedMemory(layout.size)
        try:
            self.arrays = EnvArrays(layout, memory.map)
            requests = []
            for part in self._parts:
                requests.append(self._send(pool_worker.ATTACH, part, layout))
                part.worker.send_memory(memory)
            self._collect(requests, 0, len(makers))
        finally:
            memory.close()

    def _send(self, kind: bytes, part: _Part, values: Any = None) -> _Request:
        request = _Request(*part)
        header = HEADER.pack(kind, NO_TYPE, self.number, part.start, part.stop)
        part.worker.send(request, header, values)
        return request

    def ask(
        self, kind: bytes, start: int, stop: int, values: Callable[[int, int], Any]
    ) -> dict[int, Any]:
        """Send a command for a range of environments; return the results that are not None.

        ``values`` returns the arguments of the command for a range of environments.
        """
        requests = [
            self._send(kind, part, values(part.start, part.stop))
            for part in self.parts(start, stop)
        ]
        return self._collect(requests, start, stop)

    def _collect(self, requests: list[_Request], start: int, stop: int) -> dict[int, Any]:
        results: dict[int, Any] = {}
        for request in requests:
            self.wait(request, start, stop)
            results.update(request.results)
        return results

    def wait(self, request: _Request, start: int, stop: int) -> None:
        """Wait for an answer; raise the first error of the environments in a range."""
        if not request.is_answered:
            start, stop = max(request.start, start), min(request.stop, stop)
            whose = f"{self._names[start]}: its process"
            if stop > start + 1:
                whose = f"{self._names[start]} to {self._names[stop - 1]}: their process"
            request.worker.wait(request, whose)
        for index, failure in sorted(request.errors.items()):
            if start <= index < stop:
                text = f"{self._names[index]}: its process failed with {failure.text}"
                error = failure.error or EnvError(text)
                raise error from WorkerTraceback(failure.trace)

    def close(self, start: int, stop: int) -> None:
        """Close a range of environments; kill processes that take too long."""
        deadline = time.monotonic() + CLOSE_SECONDS
        requests = [self._send(pool_worker.CLOSE, part) for part in self.parts(start, stop)]
        for request in requests:
            if not request.worker.wait_until(request, deadline):
                request.worker.kill()


class PooledEnvs(VectorEnv[Any, Any, Any]):
    """Environments in the processes of a `WorkerPool`, or a `part` of them.

    The next step overwrites the observations that a step returned.
    """

    def __init__(self, group: _Group, start: int, stop: int) -> None:
        self._group = group
        self._start, self._stop = start, stop
        self._parts = list(group.parts(start, stop))
        self._rows: dict[str, Any] = {}
        self._owned: WorkerPool | None = None
        arrays = group.arrays
        self.num_envs = stop - start
        self.single_observation_space, self.single_action_space = group.spaces
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observations = arrays.observations[start:stop]
        self.final_observations = arrays.final_observations[start:stop]
        self.rewards = arrays.rewards[start:stop]
        self.terminations = arrays.terminations[start:stop]
        self.truncations = arrays.truncations[start:stop]

    def own(self, pool: WorkerPool) -> PooledEnvs:
        """Close the pool together with these environments; return them."""
        self._owned = pool
        return self

    @property
    def processes(self) -> list[Any]:
        """The processes of these environments."""
        return [part.worker.process for part in self._parts]

    @property
    def has_lost_process(self) -> bool:
        """Whether one of the processes has ended."""
        return any(part.worker.has_died() for part in self._parts)

    def part(self, start: int, stop: int) -> PooledEnvs:
        """Return some of the environments, which can be used on their own.

        Its arrays are views. After `step_async` of the whole, `step_wait` of a part returns the
        results of its environments, and raises only their errors.
        """
        if not 0 <= start < stop <= self.num_envs:
            raise IndexError(f"there are no environments {start} to {stop} of {self.num_envs}")
        return PooledEnvs(self._group, self._start + start, self._start + stop)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: Any = None,
        seeds: Sequence[int | None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes; environment ``i`` is seeded with ``seed + i``, or ``seeds[i]``."""
        if seeds is None:
            seeds = [None if seed is None else seed + index for index in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds were given for {self.num_envs} environments")
        chosen, first = list(seeds), self._start
        masks = self._group.ask(
            pool_worker.RESET,
            self._start,
            self._stop,
            lambda start, stop: (chosen[start - first : stop - first], options),
        )
        infos: dict[str, Any] = {}
        for index, mask in masks.items():
            infos = self._add_info(infos, mask, index - first)
        return self.observations, infos

    def step(self, actions: Any) -> StepResult:
        """Step all environments."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any, active: BoolArray | None = None) -> None:
        """Start a step; with ``active``, only of the environments where it is True.

        The arrays of the others keep their values. An error of the environments or of their
        processes is raised by `step_wait`.
        """
        self._finish()
        actions = np.asarray(actions)
        code = self._write(actions)
        number, steps = self._group.number, self._group.steps
        if active is not None:
            self._group.arrays.active[self._start : self._stop] = active
        kind = pool_worker.STEP if active is None else pool_worker.STEP_ACTIVE
        for worker, start, stop in self._parts:
            chosen = None
            if active is not None:
                chosen = np.array(active[start - self._start : stop - self._start], dtype=bool)
                if not chosen.any():
                    steps[start:stop] = [None] * (stop - start)
                    continue
            request = _Request(worker, start, stop, chosen)
            steps[start:stop] = [request] * (stop - start)
            worker.send(request, HEADER.pack(kind, code, number, start, stop))

    def _write(self, actions: np.ndarray[Any, Any]) -> bytes:
        """Write the actions with their own type, which the environments receive; return it."""
        dtype = actions.dtype
        if dtype.kind not in "fiub" or dtype.itemsize > ACTION_BYTES or not dtype.isnative:
            dtype = np.dtype(self.single_action_space.dtype)
        code: str = dtype.char
        if code not in self._rows:
            self._rows[code] = self._group.arrays.typed_actions(code)[self._start : self._stop]
        self._rows[code][...] = actions
        return code.encode()

    def _requests(self) -> list[_Request]:
        """Return the latest steps of the environments."""
        steps = dict.fromkeys(self._group.steps[self._start : self._stop])
        return [request for request in steps if request is not None]

    def _finish(self) -> None:
        """Wait for a step whose results nobody has read; its errors are ignored."""
        for request in self._requests():
            if not request.is_answered:
                with suppress(EnvError):
                    request.worker.wait(request, "")

    def wait(self) -> bool:
        """Wait for the latest step, without raising errors; return whether there are any."""
        self._finish()
        return any(request.errors or not request.is_answered for request in self._requests())

    def step_wait(self) -> StepResult:
        """Wait for the latest step and return its results, with infos as of `LocalEnvs`."""
        requests = self._requests()
        for request in requests:
            self._group.wait(request, self._start, self._stop)
        terminations, truncations = self.terminations.copy(), self.truncations.copy()
        ended = terminations | truncations
        infos: dict[str, Any] = {}
        if ended.any() or any(request.results for request in requests):
            for request in requests:
                infos = self._add_infos(infos, request, ended)
        return self.observations, self.rewards.copy(), terminations, truncations, infos

    def _add_infos(
        self, infos: dict[str, Any], request: _Request, ended: BoolArray
    ) -> dict[str, Any]:
        for index in range(max(request.start, self._start), min(request.stop, self._stop)):
            if request.active is not None and not request.active[index - request.start]:
                continue
            own, info = index - self._start, request.results.get(index, {})
            if ended[own]:
                final_obs = self.final_observations[own].copy()
                final = {"final_obs": final_obs, "final_info": info.get("final_info", {})}
                infos = self._add_info(infos, final, own)
            if ACTION_MASK in info:
                infos = self._add_info(infos, {ACTION_MASK: info[ACTION_MASK]}, own)
        return infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or return an attribute of each."""
        results = self._group.ask(
            pool_worker.CALL, self._start, self._stop, lambda _start, _stop: (name, args, kwargs)
        )
        return tuple(results.get(index) for index in range(self._start, self._stop))

    def close_extras(self, **_: Any) -> None:
        """Close these environments; processes that take too long are killed."""
        if self._owned is not None:
            self._owned.close()
        else:
            self._group.close(self._start, self._stop)

    def __del__(self) -> None:
        """Leave the environments open: others may use the same ones, or the pool closes them."""
