"""The folder of a study: adding plans, contradictions, locks and damage."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rl_training.boundary.locking import hold_lock
from rl_training.errors import ConfigError, TrainingError
from rl_training.study.folder import (
    Shard,
    check_folder,
    check_run_folders,
    open_session,
    planned_runs,
    read_description,
)
from rl_training.study.index import StudyIndex
from rl_training.study.jobs import Ended, Started
from rl_training.study.planning import plan_study
from rl_training.study.records import INDEX_FILE, RunStatus
from tests.study.simulated import HOST, simulate_study
from tests.study.small import small_plan


def add(folder: Path, **changes: Any) -> StudyIndex:
    with open_session(folder, small_plan(**changes)) as session:
        return session.index


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".lock"
    }


def test_a_new_study_has_its_plan(tmp_path: Path) -> None:
    index = add(tmp_path / "study", name="mine")
    assert (index.name, list(index.runs)) == (
        "mine",
        [f"{algo}/Pendulum-v1/seed{seed}" for algo in ("sac", "td3") for seed in (0, 1)],
    )
    assert {run.status for run in index} == {RunStatus.PLANNED}
    assert {run.threads for run in index} == {1}
    description = read_description(tmp_path / "study")
    assert description is not None
    assert description.name == "mine"
    (session,) = StudyIndex.open(tmp_path / "study").sessions
    assert session.pid == os.getpid()


def test_a_changed_study_adds_runs(tmp_path: Path) -> None:
    add(tmp_path)
    before = (tmp_path / INDEX_FILE).read_bytes()
    index = add(tmp_path, algos=("td3", "tqc"), seeds=[1, 5])
    assert list(index.runs) == [
        *("sac/Pendulum-v1/seed0", "sac/Pendulum-v1/seed1", "td3/Pendulum-v1/seed0"),
        *("td3/Pendulum-v1/seed1", "td3/Pendulum-v1/seed5"),
        *("tqc/Pendulum-v1/seed1", "tqc/Pendulum-v1/seed5"),
    ]
    assert (tmp_path / INDEX_FILE).read_bytes().startswith(before)  # lines are only appended
    chosen = planned_runs(index, small_plan(algos=("td3",), seeds=[5]))
    assert [run.key for run in chosen] == ["td3/Pendulum-v1/seed5"]


def test_the_same_plan_adds_only_a_session(tmp_path: Path) -> None:
    add(tmp_path)
    before = len((tmp_path / INDEX_FILE).read_bytes().splitlines())
    add(tmp_path)
    assert len((tmp_path / INDEX_FILE).read_bytes().splitlines()) == before + 1


def test_a_contradiction_is_one_sentence_and_changes_nothing(tmp_path: Path) -> None:
    add(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        add(tmp_path, algos=("tqc", "td3"), settings={"gamma": 0.5})
    assert str(caught.value) == (
        f"{tmp_path} already has 'td3' on 'Pendulum-v1' with gamma = 0.99, which is now 0.5: "
        "results of different settings never share a label, so use another label or another folder."
    )
    assert contents(tmp_path) == before


def test_a_contradiction_names_the_key_that_was_changed(tmp_path: Path) -> None:
    """Not the one that follows from it."""
    with open_session(tmp_path / "study", small_plan()):
        pass
    longer = small_plan(settings={"total_timesteps": 400})
    with (
        pytest.raises(ConfigError, match="total_timesteps = 200, which is now 400"),
        open_session(tmp_path / "study", longer),
    ):
        pass


def test_threads_cannot_change(tmp_path: Path) -> None:
    add(tmp_path, settings={"num_threads": None})
    with pytest.raises(ConfigError, match="num_threads = 1, which is now 2"):
        add(tmp_path, settings={"num_threads": None}, threads=2)


def test_tags_and_resources_may_change(tmp_path: Path) -> None:
    add(tmp_path)
    index = add(tmp_path, settings={"tags": ["x"]}, resources={"memory": "3GiB"})
    assert {group.resources["memory"] for group in index.groups.values()} == {3 << 30}


def test_labels_that_differ_only_in_punctuation_have_different_folders(tmp_path: Path) -> None:
    plan = small_plan(algos=("sac",), seeds=1, grid={"gamma": [0.5]})
    with open_session(tmp_path, plan):
        pass
    entry = plan.description.runs[0].model_copy(update={"label": "sac_gamma=0.5"})
    description = plan.description.model_copy(update={"runs": (entry,), "grid": {}})
    with open_session(tmp_path, plan_study(description)) as session:
        assert len(session.index.groups) == 2
        assert len({folder.lower() for folder in session.index.groups}) == 2


# --- Wrong folders --------------------------------------------------------------


def test_the_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    add(tmp_path, name="one")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"belongs to the study 'one', not to 'two'"):
        add(tmp_path, name="two")
    assert contents(tmp_path) == before
    add(tmp_path)  # without a name, the folder's study is meant
    (tmp_path / "study.yaml").unlink()
    with pytest.raises(ConfigError, match="belongs to the study 'one'"):
        check_folder(tmp_path, "two")


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="contains other files and is not a study"):
        add(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ConfigError, match="is not a folder"):
        add(tmp_path / "thesis.tex")


def test_a_kill_while_planning_can_be_repeated(tmp_path: Path) -> None:
    """Whatever part of the first session was written, the next one completes the plan."""
    whole = add(tmp_path / "whole")
    index = (tmp_path / "whole" / INDEX_FILE).read_bytes()
    for number, size in enumerate([0, 10, len(index) // 2, len(index) - 200]):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        (folder / INDEX_FILE).write_bytes(index[:size])
        assert add(folder).runs.keys() == whole.runs.keys()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "locks").mkdir()
    (folder / ".tmp-study.yaml").write_text("runs: [")
    assert add(folder).runs.keys() == whole.runs.keys()


def test_a_damaged_description_is_one_sentence(tmp_path: Path) -> None:
    add(tmp_path)
    (tmp_path / "study.yaml").write_text("runs: [sac/pendulum]\nsedes: 2\n")
    with pytest.raises(ConfigError, match=r"study\.yaml: Unknown key 'sedes'"):
        add(tmp_path)


@pytest.mark.parametrize("file", [INDEX_FILE, "study.yaml"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, file: str) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place = "rl_training.study.folder.write_atomically"
    if file == INDEX_FILE:
        place = "rl_training.boundary.journal.write_all"
    with (
        mock.patch(place, side_effect=full),
        pytest.raises(TrainingError, match=r"cannot be written \(No space left on device\)"),
    ):
        add(tmp_path)
    assert len(add(tmp_path)) == 4


# --- Locks and shards -----------------------------------------------------------


def test_a_study_is_run_by_one_process(tmp_path: Path) -> None:
    with open_session(tmp_path, small_plan()):
        with pytest.raises(ConfigError) as caught:
            add(tmp_path)
        assert f"{tmp_path} is being run by another process (process {os.getpid()}" in str(
            caught.value
        )
        with open_session(tmp_path, small_plan(), shard=Shard(1, 2)):
            pass  # it adds no runs, and has an index file of its own
        with (
            pytest.raises(ConfigError, match="Until then, no runs can be added"),
            open_session(tmp_path, small_plan(seeds=5), shard=Shard(1, 2)),
        ):
            pass
    add(tmp_path, seeds=5)


def test_each_shard_is_run_by_one_process(tmp_path: Path) -> None:
    with (
        open_session(tmp_path, small_plan(), shard=Shard(1, 2)),
        open_session(tmp_path, small_plan(), shard=Shard(2, 2)),
        pytest.raises(ConfigError, match=r"Shard 1/2 of .* is being run by another process"),
        open_session(tmp_path, small_plan(), shard=Shard(1, 2)),
    ):
        pass
    names = {file.name for file in tmp_path.glob("index*")}
    assert names == {INDEX_FILE, "index-1-of-2.jsonl", "index-2-of-2.jsonl"}


def test_shards_divide_the_runs(tmp_path: Path) -> None:
    runs = list(add(tmp_path, seeds=5))
    parts = [Shard(number, 3).of(runs) for number in (1, 2, 3)]
    assert sorted(run.key for part in parts for run in part) == sorted(run.key for run in runs)
    assert [len(part) for part in parts] == [4, 3, 3]


@pytest.mark.parametrize("text", ["3", "0/2", "3/2", "a/b", "1/2/3", "-1/2", "1/100000", ""])
def test_a_bad_shard_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^shard = "):
        Shard.parse(text)
    assert Shard.parse("3/16") == Shard(3, 16)


def test_waiting_for_a_plan_ends(tmp_path: Path) -> None:
    add(tmp_path)
    lock = tmp_path / "locks" / "plan.lock"
    with (
        mock.patch("rl_training.study.folder.PLAN_SECONDS", 0.05),
        hold_lock(lock, what=tmp_path, busy=""),
        pytest.raises(ConfigError, match="is being changed by another process: try again"),
    ):
        add(tmp_path)


# --- Recording ------------------------------------------------------------------


def test_events_are_read_back(tmp_path: Path) -> None:
    with open_session(tmp_path, small_plan()) as session:
        first, second, third, _ = session.index
        session.started(first, Started(first.key, 1, HOST))
        session.ended(first, Ended(first.key, RunStatus.FAILED, step=3, reason="why"))
        session.started(first, Started(first.key, 1, HOST))
        session.ended(first, Ended(first.key, RunStatus.FINISHED, step=9, seconds=2.0))
        session.started(second, Started(second.key, 1, HOST))
        session.ended(third, Ended(third.key, RunStatus.FAILED, reason="before its start"))
        for run in session.index:  # what is in memory equals what is on disk
            saved = StudyIndex.open(tmp_path).runs[run.key]
            if run is not second:  # nobody holds its lock
                assert saved == run
        saved = StudyIndex.open(tmp_path).runs[second.key]
        assert saved.status is RunStatus.INTERRUPTED
        assert len(StudyIndex.open(tmp_path).hosts) == 1


def test_a_failed_write_of_an_event_is_one_sentence(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with open_session(tmp_path, small_plan()) as session:
        run = next(iter(session.index))
        with (
            mock.patch("rl_training.boundary.journal.write_all", side_effect=full),
            pytest.raises(TrainingError, match="Nothing that was finished is lost"),
        ):
            session.started(run, Started(run.key, 1, HOST))


# --- Changed run folders ----------------------------------------------------------


def test_deleted_runs_are_found(tmp_path: Path) -> None:
    index = StudyIndex.open(simulate_study(tmp_path / "study", seeds=1))
    first, second = index
    for run in index:
        for name in ("run.json", "config.yaml"):
            (run.path / name).write_text("{}")
    assert check_run_folders([first, second]) == []
    shutil.rmtree(first.path)
    assert check_run_folders([first, second]) == [first]


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    index = add(tmp_path)
    run = next(iter(index))
    run.path.mkdir(parents=True)
    (run.path / "notes.txt").touch()
    with pytest.raises(ConfigError, match="is not a run of the study: move it away"):
        check_run_folders([run])
