"""Copies of the trials in an Optuna storage."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from rl_training.errors import ConfigError, TrainingError
from rl_training.tuning.storage import StorageCopy, shown_storage, without_passwords
from rl_training.tuning.trials import TrialIndex, TrialStatus
from rl_training.tuning.tuning import Tuning, TuningResult
from tests.tuning.simulated import SimulatedExecutor, outcomes, tuning

STATES = {
    TrialStatus.COMPLETE: TrialState.COMPLETE,
    TrialStatus.PRUNED: TrialState.PRUNED,
    TrialStatus.FAILED: TrialState.FAIL,
}


def run(folder: Path, storage: str, **changes: Any) -> TuningResult:
    executor = changes.pop("executor", None) or SimulatedExecutor()
    watchers = changes.pop("watchers", [])
    return tuning(**changes).run(
        folder, storage=storage, executor=executor, watchers=watchers, progress=False
    )


class Lines:
    """Collects the messages of a tuning."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)

    def changed(self, state: Any) -> None:
        pass

    def evaluated(self, run: Any, step: int, metrics: Any) -> None:
        pass


def load(storage: str, name: str = "tuning") -> optuna.Study:
    made = RDBStorage(storage) if "://" in storage else JournalStorage(JournalFileBackend(storage))
    return optuna.load_study(study_name=name, storage=made)


@pytest.fixture(params=["journal", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "journal":
        return str(tmp_path / "optuna.log")
    return f"sqlite:///{tmp_path / 'optuna.db'}"


def test_a_storage_has_the_same_trials(tmp_path: Path, storage: str) -> None:
    result = run(tmp_path / "tuning", storage)
    copied = load(storage).trials
    assert [trial.number for trial in copied] == [trial.number for trial in result.trials]
    for found, trial in zip(copied, result.trials, strict=True):
        assert found.state is STATES[trial.status]
        assert found.params == trial.params
        assert found.intermediate_values == trial.points
        assert found.user_attrs["scores"] == list(trial.scores)
        assert found.user_attrs["folder"] == trial.folder
    assert result.best is not None
    assert load(storage).best_trial.number == result.best.number


def test_a_storage_may_be_added_later_and_is_completed(tmp_path: Path, storage: str) -> None:
    folder = tmp_path / "tuning"
    tuning(trials=4).run(folder, executor=SimulatedExecutor(), progress=False)
    run(folder, storage, trials=6)
    assert len(load(storage).trials) == 6
    before = outcomes(folder)
    run(folder, storage, trials=6)
    assert outcomes(folder) == before
    assert len(load(storage).trials) == 6


def test_a_storage_changes_nothing(tmp_path: Path, storage: str) -> None:
    run(tmp_path / "tuning", storage)
    tuning().run(tmp_path / "alone", executor=SimulatedExecutor(), progress=False)
    assert outcomes(tmp_path / "tuning") == outcomes(tmp_path / "alone")


def test_the_storage_of_another_tuning_is_refused(tmp_path: Path, storage: str) -> None:
    run(tmp_path / "first" / "tuning", storage, trials=2)
    with pytest.raises(ConfigError, match="has a study 'tuning' that belongs to another tuning"):
        run(tmp_path / "second" / "tuning", storage, trials=2)
    assert not (tmp_path / "second").exists()
    run(tmp_path / "third", storage, trials=2)  # with another name, they share the storage
    assert len(load(storage, "third").trials) == 2


def test_a_study_of_somebody_else_is_refused(tmp_path: Path, storage: str) -> None:
    made = RDBStorage(storage) if "://" in storage else JournalStorage(JournalFileBackend(storage))
    study = optuna.create_study(study_name="tuning", storage=made)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(ConfigError, match="belongs to something else: use another storage"):
        run(tmp_path / "tuning", storage, trials=2)


def test_a_torn_journal_is_continued(tmp_path: Path) -> None:
    """Optuna alone cannot read a journal after a kill in the middle of a line."""
    file = tmp_path / "optuna.log"
    run(tmp_path / "tuning", str(file), trials=3)
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    run(tmp_path / "tuning", str(file), trials=4)
    assert [trial.state for trial in load(str(file)).trials] == [TrialState.COMPLETE] * 4
    assert [trial.number for trial in load(str(file)).trials] == [0, 1, 2, 3]


def test_a_damaged_journal_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "optuna.log"
    file.write_text("not a journal\nat all\n")
    with pytest.raises(ConfigError, match=r"The storage .*optuna\.log cannot be opened \("):
        run(tmp_path / "tuning", str(file), trials=2)
    assert not (tmp_path / "tuning").exists()


def test_a_storage_that_fails_does_not_stop_the_tuning(tmp_path: Path) -> None:
    database = tmp_path / "optuna.db"
    watcher, events = Lines(), [0]

    def break_database() -> None:
        events[0] += 1
        if events[0] == 20:
            with sqlite3.connect(database) as connection:
                connection.execute("DROP TABLE trial_params")

    result = run(
        tmp_path / "tuning",
        f"sqlite:///{database}",
        executor=SimulatedExecutor(at_event=break_database),
        watchers=[watcher],
        trials=5,
    )
    assert len(result.trials) == 5
    warnings = [line for line in watcher.lines if line.startswith("Warning: The storage")]
    assert len(warnings) == 2  # when it failed, and at the end
    assert "No trial is lost: the next session with this storage completes it." in warnings[0]
    database.unlink()
    run(tmp_path / "tuning", f"sqlite:///{database}", trials=5)
    assert len(load(f"sqlite:///{database}").trials) == 5


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "redis://localhost",
            "Redis storages are not supported, since reading them could run code",
        ),
        ("postgresql://me:secret@localhost/db", "pip install 'psycopg[binary]', and let the URL"),
        ("mysql+pymysql://me@localhost/db", "pip install 'pymysql'"),
        ("oracle://somewhere", "no driver for this database is installed"),
        ("nonsense://somewhere", "cannot be opened"),
        ("missing/folder/optuna.log", "should be a database URL such as"),
        ("sqlite:////missing/folder/optuna.db", "cannot be opened"),
    ],
)
def test_unusable_storages_are_one_sentence(
    tmp_path: Path, where: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for driver in ("psycopg", "psycopg2", "pymysql"):
        monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "tuning", where, trials=1)
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_passwords_are_not_recorded(tmp_path: Path) -> None:
    assert shown_storage("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert shown_storage("postgresql://me@host/db") == "postgresql://me@host/db"
    assert shown_storage("sqlite:///file.db") == "sqlite:///file.db"
    command = ["tune", "--storage", "mysql://a:b@c/d", "--storage=mysql://a:b@c/d", "x=1"]
    assert without_passwords(command) == [
        *("tune", "--storage", "mysql://a:***@c/d", "--storage=mysql://a:***@c/d", "x=1")
    ]


def test_nothing_in_a_storage_is_executed(tmp_path: Path) -> None:
    """Samplers may leave pickles in a storage; they are never read."""
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    run(tmp_path / "tuning", storage, trials=2)
    ran = tmp_path / "ran"
    evil = f"cposix\nsystem\n(S'touch {ran}'\ntR.".encode().hex()
    with sqlite3.connect(tmp_path / "optuna.db") as connection:
        for key in ("cma:optimizer:0", "tpe:relative_params:0"):
            connection.execute(
                "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (1, ?, ?)",
                (key, json.dumps(evil)),
            )
    run(tmp_path / "tuning", storage, trials=4)
    assert not ran.exists()


def test_a_copy_needs_the_trials_in_order(tmp_path: Path) -> None:
    """Nobody else may add trials to the study."""
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    folder = tmp_path / "tuning"
    run(folder, storage, trials=3)
    trials = TrialIndex.open(folder)
    copy = StorageCopy(storage, trials, Tuning.load(folder).plan().space, "tuning")
    load(storage).enqueue_trial({"x": 0.0})
    with pytest.raises(TrainingError, match="has 4 trials"):
        copy.update(trials)
