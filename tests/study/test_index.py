"""The index of a study: merging, damage, and size."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from rl_training.boundary.journal import journal_line
from rl_training.boundary.locking import hold_lock
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.records import (
    INDEX_FILE,
    LostRecord,
    Record,
    ResourcesRecord,
    RunStatus,
    SeedsRecord,
    lock_file,
)
from tests.study.simulated import (
    CONFIG,
    HOST,
    ended,
    group,
    header,
    simulate_study,
    started,
    write_index,
)

KEY = "sac/Pendulum-v1/seed0"


def status(study: Path, *events: Record) -> RunStatus:
    write_index(study, [header(), group(), *events])
    return StudyIndex.open(study).runs[KEY].status


def test_reads_what_a_study_wrote(tmp_path: Path) -> None:
    index = StudyIndex.open(simulate_study(tmp_path / "study", seeds=2))
    assert (index.name, len(index), index.damaged_lines) == ("study", 4, 0)
    assert (index.labels, index.tasks) == (["sac", "td3"], ["Pendulum-v1"])
    run = index.runs["td3/Pendulum-v1/seed1"]
    assert (run.label, run.task, run.seed, run.threads) == ("td3", "Pendulum-v1", 1, 1)
    assert run.status is RunStatus.FINISHED
    assert (run.attempts, run.failures, run.step, run.seconds) == (1, [], 1000, 12.5)
    assert run.config == CONFIG | {"algo": "td3", "seed": 1}
    assert run.path == tmp_path / "study" / "runs" / "td3/Pendulum-v1/seed1"
    assert (run.path / "metrics.jsonl").is_file()
    assert index.hosts[str(run.host)] == HOST


def test_a_moved_study_has_moved_runs(tmp_path: Path) -> None:
    simulate_study(tmp_path / "old").rename(tmp_path / "new")
    for run in StudyIndex.open(tmp_path / "new"):
        assert run.path.is_dir()


def test_states_follow_from_the_last_attempt(tmp_path: Path) -> None:
    cases: dict[RunStatus, list[Record]] = {
        RunStatus.PLANNED: [],
        RunStatus.INTERRUPTED: [started(KEY)],
        RunStatus.STOPPED: [started(KEY), ended(KEY, status="stopped")],
        RunStatus.FAILED: [started(KEY), ended(KEY, status="failed", reason="no")],
        RunStatus.FINISHED: [started(KEY), ended(KEY, status="interrupted"), ended(KEY, 2)],
    }
    for number, (expected, events) in enumerate(cases.items()):
        assert status(tmp_path / str(number), *events) is expected


def test_a_run_whose_lock_is_held_is_running(tmp_path: Path) -> None:
    assert status(tmp_path, started(KEY)) is RunStatus.INTERRUPTED
    with hold_lock(lock_file(tmp_path, KEY), what=tmp_path, busy=""):
        assert StudyIndex.open(tmp_path).runs[KEY].status is RunStatus.RUNNING


def test_failures_keep_their_reasons(tmp_path: Path) -> None:
    events = [
        *(started(KEY, 1), ended(KEY, 1, "failed", reason="one", step=10)),
        *(started(KEY, 2), ended(KEY, 2, "failed", reason="two", step=20)),
        *(started(KEY, 3), ended(KEY, 3)),
    ]
    write_index(tmp_path, [header(), group(), *events])
    run = StudyIndex.open(tmp_path).runs[KEY]
    assert [(f.attempt, f.reason, f.step) for f in run.failures] == [(1, "one", 10), (2, "two", 20)]
    assert (run.status, run.attempts) == (RunStatus.FINISHED, 3)


def test_the_order_of_events_does_not_matter(tmp_path: Path) -> None:
    """Shards write to files of their own, and clocks of machines differ."""
    events = [started(KEY, 1), ended(KEY, 1, "interrupted", step=5), started(KEY, 2), ended(KEY, 2)]
    for number, order in enumerate(permutations(events)):
        study = tmp_path / str(number)
        write_index(study, [header(), group(), order[0]])
        write_index(study, order[1:3], "index-1-of-2.jsonl")
        write_index(study, order[3:], "index-2-of-2.jsonl")
        run = StudyIndex.open(study).runs[KEY]
        assert (run.status, run.attempts, run.step) == (RunStatus.FINISHED, 2, 1000)


def test_a_complete_attempt_counts_even_if_another_was_reported(tmp_path: Path) -> None:
    complete = [ended(KEY, 1), ended(KEY, 1, "interrupted"), started(KEY, 2)]
    assert status(tmp_path, *complete) is RunStatus.FINISHED


def test_a_lost_run_is_planned_again(tmp_path: Path) -> None:
    events: list[Record] = [started(KEY), ended(KEY), LostRecord(run=KEY, attempt=1)]
    assert status(tmp_path / "a", *events) is RunStatus.PLANNED
    assert status(tmp_path / "b", *events, started(KEY, 2)) is RunStatus.INTERRUPTED
    assert status(tmp_path / "c", *events, started(KEY, 2), ended(KEY, 2)) is RunStatus.FINISHED


def test_a_plan_grows(tmp_path: Path) -> None:
    more = SeedsRecord(folder="sac/Pendulum-v1", seeds=[1, 2])
    larger = ResourcesRecord(folder="sac/Pendulum-v1", resources={"cpus": 4.0})
    write_index(tmp_path, [header(), group(), more, larger, group("td3")])
    index = StudyIndex.open(tmp_path)
    assert [run.seed for run in index if run.label == "sac"] == [0, 1, 2]
    assert index.groups["sac/Pendulum-v1"].resources == {"cpus": 4.0}
    assert len(index) == 5


def test_a_kill_at_any_byte_keeps_all_complete_lines(tmp_path: Path) -> None:
    events = [header(), group(), started(KEY), ended(KEY)]
    lines = [journal_line(record.line()) for record in events]
    states = [None, None, RunStatus.PLANNED, RunStatus.INTERRUPTED, RunStatus.FINISHED]
    (tmp_path / "locks").mkdir()
    for size in range(0, len(b"".join(lines)) + 1, 7):
        (tmp_path / INDEX_FILE).write_bytes(b"".join(lines)[:size])
        complete = b"".join(lines)[: size + 1].count(b"\n")
        run = StudyIndex.open(tmp_path).runs.get(KEY)
        assert (run.status if run else None) is states[complete]


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    write_index(tmp_path, [header(), group(), started(KEY)])
    file = tmp_path / INDEX_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1].replace(b"sac", b"td3") + lines[2])
    index = StudyIndex.open(tmp_path)
    assert (index.damaged_lines, len(index)) == (1, 0)  # the event has no run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folder": "../../etc"}, "folder = '../../etc'"),
        ({"folder": "/etc/x"}, "folder"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": "all"}, "seeds = 'all'"),
        ({"config": []}, "config"),
        ({"label": 3}, "label = 3"),
    ],
)
def test_a_forged_line_is_one_sentence(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    data = journal_line(group().line() | change)
    (tmp_path / INDEX_FILE).write_bytes(data)
    with pytest.raises(ConfigError, match=r"record 1, was not written by a study") as caught:
        StudyIndex.open(tmp_path)
    assert message in str(caught.value)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_bytes(journal_line(header().line() | {"format": 2}))
    with pytest.raises(ConfigError, match="install a newer version"):
        StudyIndex.open(tmp_path)


def test_unknown_kinds_are_skipped(tmp_path: Path) -> None:
    write_index(tmp_path, [header(), group()])
    with (tmp_path / INDEX_FILE).open("ab") as stream:
        stream.write(journal_line({"kind": "from a later version"}))
    assert len(StudyIndex.open(tmp_path)) == 2


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_a_folder_without_an_index_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"index\.jsonl"):
        StudyIndex.open(tmp_path / name)


def test_ten_thousand_runs_open_in_seconds(tmp_path: Path) -> None:
    """In a process of its own, without torch: less than 10 s and 1 GB, with a wide margin."""
    labels = [f"label{number}" for number in range(1000)]
    study = simulate_study(tmp_path / "study", labels=labels, seeds=10, points=0)
    code = (
        "import re, sys, time; from pathlib import Path; "
        "from rl_training.study.index import StudyIndex; "
        f"index = StudyIndex.open({str(study)!r}); assert 'torch' not in sys.modules; "
        "most = re.search('VmHWM:(.*)kB', Path('/proc/self/status').read_text())[1]; "
        "print(len(index), most, time.process_time())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    runs, kilobytes, seconds = map(float, out.stdout.split())
    assert runs == 10_000
    assert seconds < 10  # of the processor, since the machine may be busy
    assert kilobytes < 512 * 1024
