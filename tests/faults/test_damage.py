"""Damaged files: errors contain the file, `resume` falls back, other commands refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rl_training.runtime.checkpointing import FILES, MANIFEST, list_steps
from tests.faults.conftest import Reference
from tests.faults.runs import (
    BEST_STEP,
    DAMAGE,
    assert_equal_runs,
    copy_run,
    flip_byte,
    forge,
    newest,
)
from tests.faults.zygote import Zygote


def _segment(checkpoint: Path) -> Path:
    """Return the replay files that only this checkpoint refers to."""
    (name,) = json.loads((checkpoint / MANIFEST).read_bytes())["replay"]
    return checkpoint.parents[1] / "replay" / f"{name}.npy"


@pytest.fixture
def observation(tmp_path: Path) -> Path:
    file = tmp_path / "obs.npy"
    np.save(file, np.zeros(3, dtype=np.float32))
    return file


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [MANIFEST, *FILES, "segment"])
def test_resume_falls_back_from_damage(
    zygote: Zygote,
    reference: Reference,
    interrupted: Path,
    tmp_path: Path,
    name: str,
    damage: str,
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    damaged = newest(run_dir)
    file = _segment(damaged) if name == "segment" else damaged / name
    DAMAGE[damage](file)
    outcome = zygote.run("resume", run_dir)
    assert outcome.status == 0, outcome.err
    warnings = [line for line in outcome.err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 1
    assert str(file) in warnings[0]
    assert "falling back" in warnings[0]
    assert_equal_runs(run_dir, reference.run_dir)
    assert (run_dir / "checkpoints" / f"damaged-{damaged.name}").is_dir()


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [MANIFEST, *FILES])
def test_damaged_checkpoint_is_refused(
    zygote: Zygote, reference: Reference, tmp_path: Path, observation: Path, name: str, damage: str
) -> None:
    run_dir = copy_run(reference.run_dir, tmp_path)
    DAMAGE[damage](newest(run_dir) / name)
    for outcome in (
        zygote.run("evaluate", run_dir, "--episodes", "1"),
        zygote.run("predict", run_dir, "--obs", observation),
    ):
        assert outcome.status == 1
        assert str(newest(run_dir) / name) in outcome.error_line()
        assert outcome.out == ""


@pytest.mark.parametrize("place", [-1, -2])
def test_newer_format_is_refused_without_changes(
    zygote: Zygote, interrupted: Path, tmp_path: Path, place: int
) -> None:
    """An older version must not treat newer formats as damage."""
    run_dir = copy_run(interrupted, tmp_path)
    newer = list_steps(run_dir)[place]
    forge(newer, lambda manifest: manifest.update(format=2))
    if place == -2:
        flip_byte(newest(run_dir) / MANIFEST)
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    outcome = zygote.run("resume", run_dir)
    assert outcome.status == 1
    assert f"{newer / MANIFEST} has checkpoint format 2" in outcome.error_line()
    assert before == {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}


def test_altered_format_number_is_damage(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    manifest = newest(run_dir) / MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 3'))
    outcome = zygote.run("resume", run_dir)
    assert outcome.status == 0, outcome.err
    assert "its digest does not match; falling back" in outcome.err
    assert_equal_runs(run_dir, reference.run_dir)


def test_resume_keeps_replay_files_of_newer_formats(
    zygote: Zygote, interrupted: Path, tmp_path: Path
) -> None:
    """A best checkpoint from a newer version is skipped, but its replay files are kept."""
    run_dir = copy_run(interrupted, tmp_path)
    best = run_dir / "checkpoints" / f"step_{BEST_STEP:09d}"
    forge(best, lambda manifest: manifest.update(format=2))
    assert zygote.run("resume", run_dir).status == 0
    assert _segment(best).is_file()


def test_damaged_checkpoints_keep_their_replay_files(
    zygote: Zygote, interrupted: Path, tmp_path: Path
) -> None:
    """If the same step is damaged again, it is renamed to another name."""
    run_dir = copy_run(interrupted, tmp_path)
    damaged = newest(run_dir)
    folder, rows = run_dir / "checkpoints", _segment(damaged).name
    for text in ("one", "two", "three"):
        (damaged / "state.json").write_text(text)
        stopped = zygote.run("resume", run_dir, f"total_timesteps={int(damaged.name[5:])}")
        assert stopped.status == 0, stopped.err
    assert {path.name: (path / "state.json").read_text() for path in folder.glob("damaged-*")} == {
        f"damaged-{damaged.name}": "one",
        f"damaged-{damaged.name}-2": "two",
        f"damaged-{damaged.name}-3": "three",
    }
    assert zygote.run("resume", run_dir, "total_timesteps=300").status == 0
    assert damaged not in list_steps(run_dir)
    assert (run_dir / "replay" / rows).is_file()


def test_same_checkpoint_damaged_twice(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    """The name for a damaged checkpoint may already be in use."""
    run_dir = copy_run(interrupted, tmp_path)
    name = newest(run_dir).name
    flip_byte(newest(run_dir) / "state.json")
    assert zygote.run("resume", run_dir, "total_timesteps=176").status == 0
    assert newest(run_dir).name == "step_000000176"
    for path in list_steps(run_dir)[-2:]:
        flip_byte(path / "state.json")
    outcome = zygote.run("resume", run_dir, "total_timesteps=200")
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("falling back") == 2
    assert {path.name for path in (run_dir / "checkpoints").glob("damaged-*")} == {
        f"damaged-{name}",
        f"damaged-{name}-2",
        "damaged-step_000000176",
    }


def test_run_without_an_intact_checkpoint_is_refused(
    zygote: Zygote, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    for checkpoint in list_steps(run_dir):
        flip_byte(checkpoint / "model.safetensors")
    outcome = zygote.run("resume", run_dir)
    assert outcome.status == 1
    assert "has no intact checkpoint" in outcome.error_line()
    assert str(list_steps(run_dir)[0] / "model.safetensors") in outcome.error_line()


def test_incomplete_metrics_line_is_dropped(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    with (run_dir / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 180, "updates": 1')
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)


LINES = {
    "seconds as text": '{"step": 150, "time/seconds": "x"}',
    "deep": "[" * 100_000,
    "a return as text": '{"step": 150, "eval_return_mean": "x"}',
    "no return": '{"step": 150, "eval_return_mean": null}',
    "a huge return": f'{{"step": 150, "eval_return_mean": 1{"0" * 400}}}',
    "a huge step": f'{{"step": 1{"0" * 400}, "eval_return_mean": 1}}',
    "a list": '{"step": 150, "updates": [1]}',
}


@pytest.mark.parametrize("line", LINES)
def test_damaged_metrics_line_is_dropped(
    zygote: Zygote, reference: Reference, interrupted: Path, tmp_path: Path, line: str
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    with (run_dir / "metrics.jsonl").open("a") as stream:
        stream.write(LINES[line] + "\n")
    picture = zygote.run("plot", run_dir, "--out", tmp_path / "returns.png")
    assert picture.status == 0, picture.err
    resumed = zygote.run("resume", run_dir)
    assert resumed.status == 0, resumed.err
    assert_equal_runs(run_dir, reference.run_dir)


POINTERS = {
    "missing": None,
    "empty": b"",
    "garbage": b"\xff\xfe\x00 not a name",
    "outside": b"../../../../../../etc\n",
    "absolute": b"/etc\n",
    "hidden path traversal": b"step_000000100/../../../outside\n",
    "huge": b"step_" + b"0" * 1_000_000,
    "gone": b"step_000000001\n",
}


@pytest.mark.parametrize("contents", POINTERS)
def test_pointers_cannot_leave_the_run(
    zygote: Zygote,
    reference: Reference,
    interrupted: Path,
    tmp_path: Path,
    observation: Path,
    contents: str,
) -> None:
    run_dir = copy_run(interrupted, tmp_path)
    for name in ("last", "best"):
        pointer = run_dir / "checkpoints" / name
        pointer.unlink()
        if (data := POINTERS[contents]) is not None:
            pointer.write_bytes(data)
    plain = zygote.run("predict", run_dir, "--obs", observation)
    best = zygote.run("predict", run_dir, "--obs", observation, "--best")
    if contents == "gone":  # a valid name, but there is no such checkpoint
        assert plain.status == best.status == 1
        assert "step_000000001 is not a checkpoint folder" in plain.error_line()
    else:  # the newest one replaces the last; there is no replacement for the best
        assert plain.status == 0, plain.err
        assert best.status == 2
        assert "no best checkpoint" in best.error_line()
    assert zygote.run("resume", run_dir).status == 0
    assert_equal_runs(run_dir, reference.run_dir)
    assert f"step_{BEST_STEP:09d}" in (run_dir / "checkpoints" / "best").read_text()
