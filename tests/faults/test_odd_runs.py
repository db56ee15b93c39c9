"""Runs in unusual states: two processes, moved, removed, read-only or empty."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rl_training.api.training import resume, train
from rl_training.errors import ConfigError, RLTrainingError, TrainingError
from rl_training.experiment.config import make_config
from rl_training.experiment.run_directory import (
    create_run,
    is_locked,
    list_runs,
    lock_run,
    name_run,
    read_run_info,
    remove_abandoned_run_dirs,
)
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint_writer import swap
from rl_training.runtime.checkpointing import list_steps, open_checkpoint
from rl_training.runtime.session import Session
from tests.faults.conftest import Reference
from tests.faults.envs import POISON, register
from tests.faults.runs import (
    RUN_NAME,
    assert_equal_runs,
    config_for,
    copy_run,
    newest,
    write_config,
)
from tests.faults.zygote import Zygote


def test_two_processes_cannot_resume_one_run(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    children = [zygote.start("resume", run_dir) for _ in range(3)]
    outcomes = [child.wait() for child in children]
    statuses = sorted(outcome.status for outcome in outcomes)
    assert statuses in ([0, 2, 2], [0, 0, 2])  # one may start after the other has finished
    for outcome in outcomes:
        if outcome.status:
            line = outcome.error_line()
            assert "being trained by another process" in line or "This run finished" in line
    assert_equal_runs(run_dir, reference.run_dir)


def test_two_runs_get_separate_folders(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    config = write_config(tmp_path)
    children = [zygote.start("train", "-c", config) for _ in range(3)]
    assert [child.wait().status for child in children] == [0, 0, 0]
    runs = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.name for path in runs] == [RUN_NAME, f"{RUN_NAME}_2", f"{RUN_NAME}_3"]
    for run_dir in runs:
        assert_equal_runs(run_dir, reference.run_dir)


def test_moved_run_continues_in_its_new_folder(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / "renamed"
    moved.parent.mkdir()
    shutil.move(copy_run(interrupted, tmp_path), moved)
    assert zygote.run("resume", moved).status == 0
    assert_equal_runs(moved, reference.run_dir)
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_resume_of_a_finished_run_is_refused(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    run_dir = copy_run(reference.run_dir, tmp_path)
    outcome = zygote.run("resume", run_dir)
    assert outcome.status == 2
    assert "finished at step 200" in outcome.error_line()


@pytest.mark.parametrize("contents", [[], ["checkpoints"], ["config.yaml"], ["run.json"]])
def test_folder_that_is_not_a_run_is_refused(
    zygote: Zygote, tmp_path: Path, contents: list[str]
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    for name in contents:
        (folder / name).mkdir()
    for command, path in (("resume", folder), ("evaluate", folder), ("resume", tmp_path / "no")):
        outcome = zygote.run(command, path)
        assert outcome.status == 2
        assert str(path) in outcome.error_line()
    assert sorted(path.name for path in folder.iterdir()) == contents


def test_run_without_a_checkpoint_is_restarted(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    shutil.rmtree(run_dir / "checkpoints")
    shutil.rmtree(run_dir / "replay")
    assert "no checkpoint yet" in zygote.run("evaluate", run_dir).error_line()
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


def test_read_only_run_is_one_line(interrupted: Path, tmp_path: Path) -> None:
    """Permissions do not apply to root, so the error is simulated."""
    run_dir = copy_run(interrupted, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    real_open = Path.open

    def refuse(self: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        if mode.strip("b") != "r":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return real_open(self, mode, *args, **kwargs)  # type: ignore[call-overload]

    with mock.patch.object(Path, "open", refuse), pytest.raises(RLTrainingError) as caught:
        resume(run_dir)
    assert "Permission denied" in str(caught.value)
    assert before == {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not apply to root")
def test_folder_without_write_permission_is_one_line(
    zygote: Zygote, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    (run_dir / ".lock").unlink()
    run_dir.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert "Permission denied" in zygote.run("resume", run_dir).error_line()
    finally:
        run_dir.chmod(stat.S_IRWXU)


def test_output_dir_that_is_a_file_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    outcome = zygote.run("train", "-c", config, f"output_dir={config}")
    assert outcome.status == 2
    assert "output_dir" in outcome.error_line()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"step": "many", "best_return": "x", "state": 3}', "[" * 100_000),
        *(f'{{"step": 1{"0" * 400}}}', '{"step": NaN, "best_return": -Infinity}'),
    ],
    ids=range(7),
)
def test_damaged_run_json_is_harmless(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path, text: str
) -> None:
    """Listings still work, and a resume writes it again."""
    run_dir = copy_run(interrupted, tmp_path)
    (run_dir / "run.json").write_text(text)
    listed = zygote.run("runs", tmp_path)
    assert listed.status == 0, listed.err
    assert RUN_NAME in listed.out
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_failed_start_leaves_no_files(tmp_path: Path, error: BaseException) -> None:
    config = make_config(config_for(tmp_path)).resolved()
    with (
        mock.patch("os.rename", side_effect=error),
        pytest.raises((ConfigError, type(error))),
        create_run(config) as folder,
    ):
        name_run(folder, config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"buffer_capacity": 10**13}, ConfigError),  # the learner is built before the replay
        ({"env_id": POISON, "env_kwargs": {"quantity": "reset", "at": 1}}, TrainingError),
        ({"eval_episodes": 0, "tensorboard": "maybe"}, ConfigError),
    ],
    ids=["too large", "poisoned", "no such value"],
)
def test_refused_config_leaves_no_files(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    register()
    with pytest.raises(error):
        train(config_for(tmp_path, **changes))
    assert list(tmp_path.iterdir()) == []


def test_abandoned_run_folders_are_removed(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    """A recent folder may belong to another process, and one with other files is kept."""
    at = max(
        n for n, event in enumerate(reference.events) if "/.tmp-" in event.path.split(RUN_NAME)[0]
    )
    folders: list[Path] = []
    for _ in range(3):
        killed = zygote.run(
            "train", "-c", write_config(tmp_path), watch=tmp_path, at=at, action="kill"
        )
        assert killed.status == -9
        (folder,) = set(tmp_path.glob(".tmp-*")) - set(folders)
        folders.append(folder)
    old, young, foreign = folders
    assert {entry.name for entry in old.iterdir()} >= {"checkpoints", "replay", "run.json"}
    kept = tmp_path / ".tmp-mine"
    kept.mkdir()
    (foreign / "precious.txt").write_text("")
    for folder in (old, foreign, kept):
        os.utime(folder, (0, 0))
    remove_abandoned_run_dirs(tmp_path)
    assert set(tmp_path.glob(".tmp-*")) == {young, foreign, kept}
    assert list(foreign.glob("precious.txt"))


# --- During a run ---------------------------------------------------------------


class At(Callback):
    """Calls a function with the run folder after a step."""

    def __init__(self, step: int, call: Callable[[Path], object]) -> None:
        self.step = step
        self.call = call

    def on_step(self, session: Session) -> None:
        if session.state.step == self.step:
            self.call(session.checkpoints.run_dir)


@pytest.mark.parametrize("next_write", ["log", "checkpoint"])
@pytest.mark.parametrize("change", ["removed", "renamed"])
def test_run_whose_folder_is_removed_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, next_write: str
) -> None:
    moved = tmp_path / "moved"

    def lose(run_dir: Path) -> None:
        shutil.rmtree(run_dir) if change == "removed" else run_dir.rename(moved)

    log_interval = 25 if next_write == "log" else 1000
    config = config_for(tmp_path, eval_episodes=0, log_interval=log_interval, tensorboard=True)
    with pytest.raises(TrainingError) as caught:
        train(config, callbacks=[At(60, lose)])
    run_dir = tmp_path / RUN_NAME
    assert str(caught.value).startswith(f"{run_dir} was removed or renamed during training")
    assert not run_dir.exists()
    assert capsys.readouterr().err == ""
    if change == "renamed":
        assert newest(moved).name == "step_000000050"
        assert resume(moved).metrics["step"] == 200


class CustomExit(BaseException):
    """Neither an Exception nor one of Python's own exit exceptions."""


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        ("on_start", SystemExit(0)),
        ("on_step", KeyboardInterrupt()),
        ("on_log", SystemExit("bye")),
        ("on_evaluation", CustomExit()),
        ("on_end", SystemExit(0)),
    ],
)
def test_every_exit_updates_the_state_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hook: str, error: BaseException
) -> None:
    class Leaves(Callback):
        pass

    setattr(Leaves, hook, mock.Mock(side_effect=error))
    with pytest.raises(type(error)):
        train(config_for(tmp_path, total_timesteps=50), callbacks=[Leaves()])
    info = read_run_info(tmp_path / RUN_NAME)
    assert (info["state"], info["error"]) == ("interrupted", repr(error))
    assert f"was interrupted by {type(error).__name__}: resume" in capsys.readouterr().err
    resume(tmp_path / RUN_NAME)
    assert read_run_info(tmp_path / RUN_NAME)["state"] == "completed"


def test_callbacks_may_create_their_state_in_on_start(tmp_path: Path) -> None:
    """The first checkpoint is saved before that, and has the states of an earlier one."""

    class Counter(Callback):
        counted: int

        def on_start(self, session: Session) -> None:
            self.counted = getattr(self, "counted", 0)

        def on_step(self, session: Session) -> None:
            self.counted += 1

        def state_dict(self) -> dict[str, Any]:
            return {"counted": self.counted}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.counted = state["counted"]

    def leave(_run_dir: Path) -> None:
        raise KeyboardInterrupt

    source = train(config_for(tmp_path, total_timesteps=75), callbacks=[Counter()])
    branch = list_steps(source.run_dir)[-2]
    with pytest.raises(KeyboardInterrupt):
        resume(branch, ["total_timesteps=100"], callbacks=[Counter(), At(51, leave)])
    counter = Counter()
    resume(tmp_path / f"{RUN_NAME}_2", callbacks=[counter])
    assert counter.counted == 100


# --- Locks --------------------------------------------------------------------


def test_run_is_locked_during_training(tmp_path: Path) -> None:
    seen: list[object] = []

    def look(run_dir: Path) -> None:
        seen.append(is_locked(run_dir))
        with pytest.raises(ConfigError, match="is being trained by another process") as caught:
            resume(run_dir)
        seen.append(caught)

    result = train(config_for(tmp_path, total_timesteps=50), callbacks=[At(30, look)])
    assert len(seen) == 2
    assert seen[0] is True
    assert not is_locked(result.run_dir)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "none"])
def test_lock_that_is_not_a_file_is_not_held(interrupted: Path, tmp_path: Path, kind: str) -> None:
    """A listing neither waits for it nor creates one; training refuses it."""
    run_dir, elsewhere = copy_run(interrupted, tmp_path), tmp_path / "elsewhere"
    lock = run_dir / ".lock"
    lock.unlink()
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(elsewhere)
    elif kind == "folder":
        lock.mkdir()
    before = run_dir.stat().st_mtime_ns
    assert not is_locked(run_dir)
    assert [row.state for row in list_runs(tmp_path)] == ["killed"]
    assert run_dir.stat().st_mtime_ns == before
    assert not elsewhere.exists()
    if kind != "none":
        with pytest.raises(ConfigError, match=r"\.lock is not a regular file"), lock_run(run_dir):
            pass


def test_lock_that_cannot_be_opened_counts_as_held(interrupted: Path, tmp_path: Path) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with mock.patch("filelock.FileLock.acquire", side_effect=refused):
        assert is_locked(run_dir)


# --- Branches and copies ------------------------------------------------------


def test_older_checkpoint_starts_a_new_run(
    zygote: Zygote, reference: Reference, tmp_path: Path
) -> None:
    """The original run is unchanged, byte for byte."""
    run_dir = copy_run(reference.run_dir, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    outcome = zygote.run("resume", list_steps(run_dir)[-2])
    assert outcome.status == 0, outcome.err
    assert before == {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    branch = tmp_path / f"{RUN_NAME}_2"
    expected = open_checkpoint(newest(reference.run_dir)).manifest["files"]["model.safetensors"]
    assert open_checkpoint(newest(branch)).manifest["files"]["model.safetensors"] == expected


def test_saving_twice_in_a_step_keeps_retention_working(tmp_path: Path) -> None:
    """A callback may save at a step at which the run also saves."""

    class Saver(Callback):
        def on_step(self, session: Session) -> None:
            if session.state.step % 25 == 0:
                session.save()

    result = train(config_for(tmp_path, eval_episodes=0), callbacks=[Saver()])
    assert [path.name for path in list_steps(result.run_dir)] == [
        "step_000000150",
        "step_000000175",
        "step_000000200",
    ]
    assert not list((result.run_dir / "checkpoints").glob(".tmp-*"))


def test_kill_during_a_swap_loses_nothing(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    """Between two renames, neither folder has the name of the checkpoint."""
    run_dir = copy_run(interrupted, tmp_path)
    first, *others = reversed(list_steps(run_dir))
    for path in others:
        shutil.rmtree(path)
    with (
        mock.patch("os.rename", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        swap(first, run_dir / "checkpoints" / ".tmp-new")
    assert list_steps(run_dir) == []
    assert zygote.run("resume", run_dir).status == 0
    assert newest(run_dir).name == newest(reference.run_dir).name
    assert not list(run_dir.rglob(".tmp-*"))


def test_copy_is_self_contained(tmp_path: Path, reference: Reference) -> None:
    from rl_training.api.checkpoints import predict_checkpoint
    from rl_training.runtime.checkpointing import copy_checkpoint

    checkpoint = open_checkpoint(newest(reference.run_dir), replay=True)
    copy = copy_checkpoint(checkpoint, tmp_path / "copy")
    open_checkpoint(copy, replay=True)
    obs = np.zeros(3)
    expected = predict_checkpoint(checkpoint.path, obs)
    assert np.array_equal(predict_checkpoint(copy, obs), expected)
    (segment,) = (copy / "replay").iterdir()
    segment.unlink()
    with pytest.raises(RLTrainingError, match=segment.name):
        resume(copy)
    with pytest.raises(ConfigError):
        resume(tmp_path / "nowhere")
    assert json.loads((copy / "manifest.json").read_bytes())["step"] == 200
