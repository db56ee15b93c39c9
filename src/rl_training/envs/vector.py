"""Vector environments in this process or in worker processes, which may die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from rl_training.envs.contract import ACTION_MASK, AnyEnv
from rl_training.envs.state import CaptureError
from rl_training.errors import EnvError, RLTrainingError
from rl_training.text import error_text

CLOSE_SECONDS = 10.0
"""How long workers may take to close their environments before they are killed."""

REPORT_SECONDS = 5.0
"""How long a failed worker may take to report its error."""


class LocalEnvs(SyncVectorEnv[Any, Any]):
    """Environments in this process, stepped one after the other.

    The next step overwrites the arrays that a step returned.
    """

    def __init__(self, makers: Sequence[Callable[[], AnyEnv]]) -> None:
        super().__init__(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start new episodes; environment ``i`` is seeded with ``seed + i``."""
        infos: dict[str, Any] = {}
        for index, env in enumerate(self.envs):
            own = None if seed is None else seed + index
            self._observations[index], info = env.reset(seed=own, options=options)
            if ACTION_MASK in info:
                infos = self._add_info(infos, {ACTION_MASK: info[ACTION_MASK]}, index)
        return self._observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments like Gymnasium, but only for flat spaces and SAME_STEP resets."""
        infos: dict[str, Any] = {}
        for index, env in enumerate(self.envs):
            obs, reward, terminated, truncated, info = env.step(actions[index])
            if terminated or truncated:
                infos = self._add_info(infos, {"final_obs": obs, "final_info": info}, index)
                obs, info = env.reset()
            if ACTION_MASK in info:
                infos = self._add_info(infos, {ACTION_MASK: info[ACTION_MASK]}, index)
            self._observations[index] = obs
            self._rewards[index] = reward
            self._terminations[index] = terminated
            self._truncations[index] = truncated
        return self._observations, self._rewards, self._terminations, self._truncations, infos


class WorkerTraceback(Exception):  # noqa: N818 - the text of an error in another process
    """The traceback of an error in a worker, used as the cause of the error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _work(index: int, make: Callable[[], AnyEnv], pipe: Any, parent_pipe: Any, *rest: Any) -> None:
    """Run Gymnasium's worker; a constructor that fails is reported like any other error."""
    try:
        env = make()
    except Exception as error:
        _, error_queue, *_ = rest
        error_queue.put((index, type(error), error, traceback.format_exc()))
        pipe.send((None, False))
        return
    _async_worker(index, lambda: env, pipe, parent_pipe, *rest)


class _Pipe:
    """A connection to a worker that raises a clear error if the worker has died.

    Only the worker has the other end, so the connection breaks as soon as the worker ends.
    """

    def __init__(self, pipe: Any, died: Callable[[], EnvError]) -> None:
        self._pipe = pipe
        self._died = died

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)

    def send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError as error:
            raise self._died() from error

    def recv(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def ask_to_close(self) -> None:
        with suppress(OSError):  # the worker has already ended
            self._pipe.send(("close", None))

    def has_ended(self, deadline: float) -> bool:
        """Wait until the worker ends, which breaks the connection; return False on a timeout."""
        try:
            while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                self._pipe.recv_bytes()  # discard answers
        except (EOFError, OSError):
            return True
        return False


class WorkerEnvs(AsyncVectorEnv[Any, Any]):
    """An asynchronous vector environment that notices when one of its processes dies.

    After that, closing Gymnasium's class would wait for the other processes again.
    """

    def __init__(self, makers: Sequence[Callable[[], AnyEnv]], names: Sequence[str]) -> None:
        self._names = names
        self._pipes: list[_Pipe] = []
        self._has_started = False
        # No fork: the parent has threads, and forked siblings would keep the pipes of a killed
        # parent open.
        methods = multiprocessing.get_all_start_methods()
        context = "forkserver" if "forkserver" in methods else "spawn"
        super().__init__(
            makers, context=context, worker=_work, autoreset_mode=AutoresetMode.SAME_STEP
        )

    def _check_spaces(self) -> None:
        """Wrap the pipes; the constructor calls this last, before any message to the workers."""
        self._pipes = [
            _Pipe(pipe, partial(self._died, index)) for index, pipe in enumerate(self.parent_pipes)
        ]
        self.parent_pipes: Any = self._pipes
        try:
            super()._check_spaces()  # type: ignore[no-untyped-call]
        except BaseException:
            self.close()
            raise
        self._has_started = True

    def _died(self, index: int) -> EnvError:
        process = self.processes[index]
        process.join(1.0)
        code, reason = process.exitcode, "stopped responding"
        if code is not None and code < 0:
            known = -code in set(signal.Signals)
            reason = f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
            if -code == getattr(signal, "SIGKILL", None):
                reason += ", which may mean that the system ran out of memory"
        elif code is not None:
            reason = f"ended with exit code {code}"
        advice = "resume the run to continue from its last checkpoint"
        if not self._has_started:
            advice = "a script that starts processes needs an if __name__ == '__main__' guard"
        return EnvError(f"{self._names[index]}: its process {reason}; {advice}")

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed:
            return
        try:
            index, _kind, error, trace = self.error_queue.get(timeout=REPORT_SECONDS)
        except Empty:
            raise self._died(failed[0]) from None
        if not isinstance(error, RLTrainingError | CaptureError):
            error = EnvError(f"{self._names[index]}: its process failed with {error_text(error)}")
        raise error from WorkerTraceback(trace)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ask the workers to close their environments; kill those that take too long.

        A busy worker reads the message after its current call. The state of the processes is not
        queried, since the server that forked them may have died from the same signal as this run.
        """
        seconds = 0.0 if terminate else CLOSE_SECONDS if timeout is None else timeout
        deadline = time.monotonic() + seconds
        for pipe in self._pipes:
            pipe.ask_to_close()
        for pipe, process in zip(self._pipes, self.processes, strict=True):
            if not pipe.has_ended(deadline) and process.pid is not None:
                # Workers ignore SIGTERM for a while; Windows has no SIGKILL and always terminates.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            pipe.close()
        for process in self.processes:
            process.join(1.0)
