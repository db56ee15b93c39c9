"""TensorBoard event files."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rl_training.boundary.writing import open_log, write_all
from rl_training.runtime.loggers.base import Frames, LoggedRun, Logger
from rl_training.runtime.loggers.video import encode_gif

TENSORBOARD = "tensorboard"
BINS = 20


class TensorBoardLogger(Logger):
    """Scalars, hyperparameters, histograms of returns, and videos of evaluations."""

    name = "TensorBoard"

    def start(self, run: LoggedRun) -> None:
        """Create a new event file, in which this session replaces later values of earlier ones."""
        folder = run.run_dir / TENSORBOARD
        is_new = not folder.exists()  # also if fine-tuning starts at a later step
        first = run.start_step + 1 if run.start_step else None
        self._events = EventFile(folder, purge_from=first)
        if is_new:
            self._events.write(0, hparams_pb(dict(run.settings), trial_id=run.run_dir.name))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the scalars of one line."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if not name.startswith("time/")  # TensorBoard records its own time
        ]
        self._events.write(step, Summary(value=values))

    def write_evaluation(self, step: int, returns: Sequence[float]) -> None:
        """Write a histogram of the returns."""
        value = Summary.Value(tag="eval_returns", histo=histogram(returns))
        self._events.write(step, Summary(value=[value]))

    def write_video(self, step: int, frames: Frames, frames_per_second: float) -> None:
        """Write an animation, which TensorBoard shows as an image."""
        _, height, width, _ = frames.shape
        image = Summary.Image(
            height=height,
            width=width,
            colorspace=3,
            encoded_image_string=encode_gif(frames, frames_per_second),
        )
        value = Summary.Value(tag="eval_video", image=image)
        self._events.write(step, Summary(value=[value]))

    def close(self, outcome: str) -> None:
        """Close the file."""
        self._events.close()


def histogram(values: Sequence[float]) -> HistogramProto:
    """Return the distribution of values in TensorBoard's format."""
    array = np.asarray(values, dtype=np.float64)
    counts, edges = np.histogram(array, bins=BINS)
    return HistogramProto(
        min=array.min(),
        max=array.max(),
        num=array.size,
        sum=array.sum(),
        sum_squares=np.square(array).sum(),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


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
            raise NotADirectoryError(f"{folder} is not a folder")
        # TensorBoard reads files in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        folder.mkdir(exist_ok=True)
        self._stream = open_log(folder / name, new=True)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if purge_from is not None:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=purge_from, session_log=start))

    def write(self, step: int, summary: Summary) -> None:
        """Write the values of one step."""
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Event) -> None:
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        write_all(self._stream, record.getvalue())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
