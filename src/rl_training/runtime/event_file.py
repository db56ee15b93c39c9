"""TensorBoard event files."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from rl_training.boundary.writing import open_log, write_all
from rl_training.errors import ConfigError


class EventFile:
    """A new event file in a run's ``tensorboard`` folder; writes are complete on return.

    TensorBoard's own writer uses a thread, whose errors cannot be caught here. The records have the
    same format.
    """

    def __init__(self, folder: Path, *, purge_from: int | None = None) -> None:
        """Create the folder and the file.

        Args:
            folder: Folder of event files.
            purge_from: First step of this session; TensorBoard hides values that earlier files have
                for this and later steps.
        """
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
            raise ConfigError(f"{folder} is not a folder: remove it, or set tensorboard=false.")
        # TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            self._stream = open_log(folder / name, new=True)
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            if purge_from is not None:
                start = SessionLog(status=SessionLog.START)
                self._write(Event(wall_time=time.time(), step=purge_from, session_log=start))
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be written ({error.strerror}): set tensorboard=false to train "
                "without it."
            ) from error

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of one step."""
        values = [Summary.Value(tag=name, simple_value=v) for name, v in scalars.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        write_all(self._stream, record.getvalue())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
