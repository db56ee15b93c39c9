"""Device, threads and memory of a run."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rl_training.boundary.reading import read_text
from rl_training.errors import ConfigError
from rl_training.text import shown

MAX_OMP_THREADS = 1024
"""Largest accepted value of `OMP_NUM_THREADS`."""

MAX_THREADS = 4
"""Largest default; more threads do not speed up matrix products with 256 rows."""


def choose_device(name: str) -> torch.device:
    """Return a device by name; `auto` is the CUDA GPU if there is one, otherwise the CPU.

    Raises:
        ConfigError: The name is unknown, or this machine does not have the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu(:0)?|mps(:0)?|cuda(:(0|[1-9][0-9]?))?", name):
        raise ConfigError(f"device = {shown(name)}: use auto, cpu, cuda, cuda:N or mps.")
    device = torch.device(name)
    count = 1
    if device.type == "mps":
        count = int(torch.backends.mps.is_available())
    elif device.type == "cuda":
        count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise ConfigError(
            f"device = {name!r} is not available: PyTorch finds {count or 'no'} "
            f"{device.type.upper()} device{'' if count == 1 else 's'} on this machine. "
            "Use device=auto or device=cpu."
        )
    return device


def available_memory(device: torch.device) -> int:
    """Return the memory of a device in bytes; for a CUDA GPU, only the free memory."""
    if device.type != "cuda":  # MPS shares the memory of the machine
        if not hasattr(os, "sysconf"):  # Windows, where a large allocation fails immediately
            return sys.maxsize
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)  # PyTorch reuses freed memory


def choose_threads(requested: int | None) -> int:
    """Return the number of CPU threads: ``requested``, `OMP_NUM_THREADS`, or one per core.

    The default of one per core is limited to `MAX_THREADS`.
    """
    given = requested or threads_from_environment()
    if given is not None:
        return given
    return min(MAX_THREADS, usable_cores())


@contextmanager
def restore_threads() -> Iterator[None]:
    """Restore the caller's number of threads on exit."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def cpu_name() -> str:
    """Return the name of the processor."""
    try:
        lines = read_text(Path("/proc/cpuinfo")).splitlines()
    except ConfigError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def hardware_name(device: torch.device) -> str:
    """Return the name of the GPU or, for other devices, of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def threads_from_environment() -> int | None:
    """Return the first number of `OMP_NUM_THREADS`; None if it is not set or not positive."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    given = int(first) if re.fullmatch(r"[0-9]{1,9}", first) else 0
    return given if 0 < given <= MAX_OMP_THREADS else None


def keep_freed_memory() -> None:
    """Make glibc keep the memory that tensors free, on Linux.

    By default, glibc returns large blocks to the system, and every update requests them again, page
    by page (docs/decisions/0005-one-node-per-network.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option, value in ((-3, 1 << 30), (-1, 2**31 - 1), (-2, 64 << 20)):
            libc.mallopt(option, value)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
