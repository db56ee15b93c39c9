"""Forbidden operations that the guard must stop, one per function."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import time
from pathlib import Path

import numpy as np


def start_shell(file: str) -> None:
    os.system(f"touch {file}")


def start_process(file: str) -> None:
    subprocess.run(["touch", file], check=False)


def replace_process(file: str) -> None:
    os.execv("/bin/touch", ["touch", file])


def fork(file: str) -> None:
    if os.fork() == 0:
        os._exit(0)


def import_from_current_folder(file: str) -> None:
    import evil  # type: ignore[import-not-found]  # noqa: F401


def import_unexpected_module(file: str) -> None:
    import sqlite3  # noqa: F401


def connect(file: str) -> None:
    with socket.socket() as stream:
        stream.connect(("127.0.0.1", 9))


def look_up_host(file: str) -> None:
    socket.getaddrinfo(b"localhost", 80)


def unpickle(file: str) -> None:
    pickle.loads(pickle.dumps(Path("x")))


def write(file: str) -> None:
    Path(file).write_text("written")


def write_through_link(file: str) -> None:
    Path("link").symlink_to(file)
    Path("link").write_text("written")


def truncate(file: str) -> None:
    os.truncate(Path(file).with_name("precious.txt"), 0)


def remove(file: str) -> None:
    Path(file).with_name("precious.txt").unlink()


def rename(file: str) -> None:
    Path(file).with_name("precious.txt").rename(file)


def make_folder(file: str) -> None:
    Path(file).mkdir()


def read_secret(file: str) -> None:
    Path(file).with_name("precious.txt").read_text()


def swallow_violation(file: str) -> None:
    with contextlib.suppress(Exception):
        os.system(f"touch {file}")


def allocate_memory(file: str) -> None:
    np.ones(300 << 20, dtype=np.uint8)


def loop_forever(file: str) -> None:
    while True:
        pass


def sleep_forever(file: str) -> None:
    time.sleep(1000)


def crash(file: str) -> None:
    os.abort()
