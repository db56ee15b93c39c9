"""A full disk: one line, exit code 1, and no data is lost."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl_training.api.training import resume, train
from rl_training.boundary.writing import write_all
from rl_training.runtime.checkpointing import open_checkpoint
from tests.faults.conftest import Reference
from tests.faults.runs import (
    RUN_NAME,
    assert_equal_runs,
    config_for,
    copy_run,
    metrics_rows,
    newest,
    write_config,
)
from tests.faults.zygote import Outcome, Zygote


def _check_and_continue(
    zygote: Zygote, reference: Reference, folder: Path, stopped: Outcome
) -> None:
    run_dir = folder / RUN_NAME
    assert stopped.status == 1, stopped
    line = stopped.error_line()
    assert "could not be written" in line
    assert "No space left on device" in line or "File too large" in line
    open_checkpoint(newest(run_dir), replay=True)
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


def _points(reference: Reference, *, saving: bool) -> list[int]:
    """Events after the first save that need disk space."""
    events = reference.events
    first_save = next(n for n, event in enumerate(events) if event.path.endswith("/last"))
    numbers = range(first_save + 1, len(events))
    return [n for n in numbers if events[n].needs_room and events[n].saving == saving]


def _fill(zygote: Zygote, reference: Reference, folder: Path, at: int) -> Outcome:
    """Train with a full disk from event ``at`` on; then free space and resume."""
    folder.mkdir()
    config = write_config(folder)
    stopped = zygote.run("train", "-c", config, watch=folder, at=at, action="full")
    _check_and_continue(zygote, reference, folder, stopped)
    return stopped


@pytest.mark.parametrize("file", ["/replay/.tmp-", "model.safetensors", "manifest.json"])
def test_full_disk_in_a_save_loses_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path, file: str
) -> None:
    candidates = [n for n in _points(reference, saving=True) if file in reference.events[n].path]
    stopped = _fill(zygote, reference, tmp_path / "run", candidates[len(candidates) // 2])
    assert "the checkpoint at step 125 could not be written" in stopped.error_line()
    assert f"{RUN_NAME}/checkpoints/step_000000100" in stopped.error_line()


def test_full_disk_in_a_sync_loses_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    syncs = [n for n in _points(reference, saving=True) if reference.events[n].name == "sync"]
    _fill(zygote, reference, tmp_path / "run", syncs[-1])


def test_full_disk_in_run_json_loses_nothing(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    points = _points(reference, saving=False)
    stopped = _fill(zygote, reference, tmp_path / "run", points[len(points) // 2])
    assert "run.json could not be written" in stopped.error_line()


def test_file_size_limit_stops_a_save(zygote: Zygote, tmp_path: Path) -> None:
    """A limit of the operating system, which the replay files reach first."""
    config = write_config(tmp_path, total_timesteps=500, log_interval=50, checkpoint_interval=50)
    whole = tmp_path / "reference"
    assert zygote.run("train", "-c", config, f"output_dir={whole}").status == 0
    stopped = zygote.run("train", "-c", config, file_limit=128 + 40 * 449)  # 40 bytes a row
    assert "the checkpoint at step 450 could not be written" in stopped.error_line()
    assert "the last complete one is" in stopped.error_line()
    assert newest(tmp_path / RUN_NAME).name == "step_000000400"
    _check_and_continue(zygote, Reference(whole / RUN_NAME, []), tmp_path, stopped)


@pytest.mark.parametrize("old", [None, b"old"])
def test_actions_are_written_atomically(
    zygote: Zygote, reference: Reference, tmp_path: Path, old: bytes | None
) -> None:
    obs, folder = tmp_path / "obs.npy", tmp_path / "out"
    folder.mkdir()
    np.save(obs, np.zeros((5000, 3), dtype=np.float32))
    if old is not None:
        (folder / "actions.npy").write_bytes(old)
    command = ("predict", reference.run_dir, "--obs", obs, "--out", folder / "actions.npy")
    failed = zygote.run(*command, file_limit=3000)
    assert failed.status == 2
    assert f"{folder / 'actions.npy'} cannot be written: File too large." in failed.error_line()
    assert {path.read_bytes() for path in folder.iterdir()} == ({old} if old else set())
    assert zygote.run(*command).status == 0
    assert np.load(folder / "actions.npy").shape == (5000, 1)
    assert [path.name for path in folder.iterdir()] == ["actions.npy"]


def test_actions_can_be_written_to_a_link_or_a_pipe(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    obs, link, pipe = (tmp_path / name for name in ("obs.npy", "link.npy", "pipe.npy"))
    np.save(obs, np.zeros(3, dtype=np.float32))
    link.symlink_to(tmp_path / "actions.npy")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    for out in (link, pipe):
        done = zygote.run("predict", reference.run_dir, "--obs", obs, "--out", out)
        assert done.status == 0, done.err
    assert link.is_symlink()
    assert np.load(tmp_path / "actions.npy").shape == (1,)
    assert pipe.is_fifo()
    assert os.read(reader, 6) == b"\x93NUMPY"
    os.close(reader)


def test_failed_first_save_leaves_no_files(zygote: Zygote, tmp_path: Path) -> None:
    stopped = zygote.run("train", "-c", write_config(tmp_path), file_limit=6_000)
    assert stopped.status == 1
    assert "the first checkpoint could not be written" in stopped.error_line()
    assert "free disk space, then start again" in stopped.error_line()
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_failed_metrics_write_stops_the_run(zygote: Zygote, tmp_path: Path) -> None:
    config = write_config(tmp_path, log_interval=1, train_frequency=1)
    whole = tmp_path / "reference"
    assert zygote.run("train", "-c", config, f"output_dir={whole}").status == 0
    stopped = zygote.run("train", "-c", config, file_limit=30_000)
    metrics = tmp_path / RUN_NAME / "metrics.jsonl"
    assert f"{metrics} could not be written" in stopped.error_line()
    assert metrics.stat().st_size == 30_000  # the last line is torn
    _check_and_continue(zygote, Reference(whole / RUN_NAME, []), tmp_path, stopped)


def test_training_continues_after_a_failed_tensorboard_write(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One warning, all lines of metrics, and no traceback."""
    config = config_for(tmp_path, log_interval=1, tensorboard=True, total_timesteps=60)
    write = mock.Mock(wraps=write_all)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write.side_effect = [mock.DEFAULT] * 31 + [full] * 99
    with mock.patch("rl_training.runtime.loggers.tensorboard.write_all", write):
        train(config)
    printed = capfd.readouterr().err
    assert printed.count("Warning: logging to TensorBoard failed") == 1
    assert "No space left on device" in printed
    assert "Traceback" not in printed
    steps = [row["step"] for row in metrics_rows(tmp_path / RUN_NAME)]
    assert list(dict.fromkeys(steps)) == list(range(1, 61))


def _events(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_tensorboard_shows_the_metrics_of_all_sessions(tmp_path: Path) -> None:
    """Values after the checkpoint from which a run resumes are shown once."""
    train(config_for(tmp_path, tensorboard=True, total_timesteps=60, checkpoint_interval=50))
    run_dir = tmp_path / RUN_NAME
    shutil.rmtree(newest(run_dir))
    resume(run_dir)
    assert len(list((run_dir / "tensorboard").iterdir())) == 2
    events = _events(run_dir / "tensorboard")
    found: dict[str, list[tuple[int, Any]]] = {}
    for row in metrics_rows(run_dir):
        for name in row.keys() - {"step"}:
            found.setdefault(name, []).append((row["step"], pytest.approx(row[name], rel=1e-6)))
    assert [step for step, _ in found["updates"]] == [25, 50, 60]
    assert {name: [(e.step, e.value) for e in events.Scalars(name)] for name in found} == found


@pytest.mark.parametrize("kind", ["file", "read-only"])
def test_unwritable_tensorboard_folder_is_one_warning(
    interrupted: Path, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    folder, real_open = run_dir / "tensorboard", os.open
    folder.touch() if kind == "file" else folder.mkdir()

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if Path(path).parent == folder:  # permissions do not apply to root
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real_open(path, *args, **kwargs)

    with mock.patch.object(os, "open", refuse):
        resume(run_dir, ["tensorboard=true"])
    reason = "is not a folder" if kind == "file" else "Permission denied"
    warnings = [line for line in capfd.readouterr().err.splitlines() if "TensorBoard" in line]
    assert len(warnings) == 1
    assert reason in warnings[0]


def test_full_disk_before_a_resume_is_one_line(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    probe = zygote.run("resume", copy_run(interrupted, tmp_path / "probe"), watch=tmp_path)
    assert probe.status == 0
    growing = [n for n, event in enumerate(probe.events) if event.needs_room]
    for at in growing[:8]:
        run_dir = copy_run(interrupted, tmp_path / str(at))
        stopped = zygote.run("resume", run_dir, watch=tmp_path, at=at, action="full")
        assert stopped.status in (1, 2), stopped
        assert "No space left on device" in stopped.error_line()
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


def test_full_disk_before_a_run_is_one_line(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    first_run = next(n for n, e in enumerate(reference.events) if e.path.endswith(RUN_NAME))
    for at in [n for n in range(first_run + 4) if reference.events[n].needs_room]:
        folder = tmp_path / str(at)
        folder.mkdir()
        config = write_config(folder)
        stopped = zygote.run("train", "-c", config, watch=folder, at=at, action="full")
        assert stopped.status in (1, 2), stopped
        assert "No space left on device" in stopped.error_line()
