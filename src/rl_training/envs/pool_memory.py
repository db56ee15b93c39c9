"""Memory that the processes of a `WorkerPool` share.

It has no name in a file system, so nothing remains of it when the processes end or are killed.
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np

_LINE = 64
"""Bytes of a cache line; every array starts at a multiple of it."""

ACTION_BYTES = 8
"""Bytes that are reserved for each number of an action, whose type is chosen at every step."""


class SharedMemory:
    """Memory that starts as zeros and can be sent to other processes until it is closed."""

    def __init__(self, size: int) -> None:
        self._tag, self._file = "", -1
        if sys.platform == "win32":
            self._tag = f"rl_training_{secrets.token_hex(16)}"
            self.map = mmap.mmap(-1, size, tagname=self._tag)
            return
        self._file = _unnamed_file()
        os.ftruncate(self._file, size)
        self.map = mmap.mmap(self._file, size)

    def send(self, connection: Any, process_id: int) -> None:
        """Send the memory to the process at the other end of a connection."""
        connection.send((len(self.map), self._tag))
        if not self._tag:
            send_handle(connection, self._file, process_id)

    def close(self) -> None:
        """Close the descriptor of the memory; the memory itself remains mapped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def receive_memory(connection: Any) -> mmap.mmap:
    """Return the memory that another process sent."""
    size, tag = connection.recv()
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=tag)
    file = recv_handle(connection)
    try:
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):  # only Linux has it
        return os.memfd_create("rl_training")
    with tempfile.TemporaryFile() as file:  # already deleted
        return os.dup(file.fileno())


@dataclass(frozen=True)
class Layout:
    """Sizes and types of the arrays of some environments."""

    num_envs: int
    obs_shape: tuple[int, ...]
    obs_type: str
    action_shape: tuple[int, ...]

    def fields(self) -> Iterator[tuple[str, int, tuple[int, ...], str]]:
        """Yield the name, position, shape and type of each array."""
        position = 0
        for name, row, kind in (
            ("actions", (self.action_bytes,), "u1"),
            ("observations", self.obs_shape, self.obs_type),
            ("final_observations", self.obs_shape, self.obs_type),
            ("rewards", (), "f8"),
            ("terminations", (), "?"),
            ("truncations", (), "?"),
            ("active", (), "?"),
        ):
            shape = (self.num_envs, *row)
            yield name, position, shape, kind
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
            position += -(-size // _LINE) * _LINE

    @property
    def action_bytes(self) -> int:
        """Bytes that are reserved for one action."""
        return ACTION_BYTES * int(np.prod(self.action_shape, dtype=np.int64))

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        *_, (_, position, shape, _) = self.fields()
        return position + shape[0]


class EnvArrays:
    """What the environments of a `PooledEnvs` receive and return, one row for each of them."""

    observations: np.ndarray[Any, Any]
    """Current observations, after resets."""
    final_observations: np.ndarray[Any, Any]
    """Last observations of the latest episodes that ended."""
    rewards: np.ndarray[Any, Any]
    terminations: np.ndarray[Any, Any]
    truncations: np.ndarray[Any, Any]
    active: np.ndarray[Any, Any]
    """Which environments take a step, if not all of them do."""

    def __init__(self, layout: Layout, memory: mmap.mmap) -> None:
        self._layout = layout
        self._memory = memory
        (_, self._actions, _, _), *fields = layout.fields()
        for name, position, shape, kind in fields:
            array: Any = np.ndarray(shape, np.dtype(kind), memory, position)
            setattr(self, name, array)

    def typed_actions(self, code: str) -> np.ndarray[Any, Any]:
        """Return the actions as numbers of a NumPy type, given by its character code."""
        shape, dtype = self._layout.action_shape, np.dtype(code)
        row = self._layout.action_bytes
        strides = (row, *np.empty(shape, dtype).strides)
        whole = (self._layout.num_envs, *shape)
        return np.ndarray(whole, dtype, self._memory, self._actions, strides)
