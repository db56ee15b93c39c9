"""Copy the trials of a tuning to an Optuna storage, for dashboards and other tools.

The index of the tuning is the record; the storage is a copy. It is written from the index, so a
copy that is incomplete after a kill, or missing, is completed by the next session. Nothing is read
from it except which trials it has.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.boundary.journal import cut_torn_line
from rl_training.errors import ConfigError, TrainingError
from rl_training.text import error_text, shown
from rl_training.tuning.optuna_memory import distributions, quiet, to_optuna
from rl_training.tuning.space import Space
from rl_training.tuning.trials import Trial, TrialIndex, TrialStatus

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

ID_KEY = "rl_training_tuning"
"""User attribute of a study that identifies its tuning."""

_DRIVERS = {
    "postgresql": ("postgresql+psycopg://", "psycopg[binary]"),
    "mysql": ("mysql+pymysql://", "pymysql"),
}
"""Drivers by database: the start of the URL, and what to install."""


def shown_storage(where: str) -> str:
    """Return a storage for messages and records, without its password."""
    if "://" not in where:
        return where
    scheme, _, rest = where.partition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':***' if colon else ''}{at}{place}"


class StorageCopy:
    """A study in an Optuna storage that follows the trials of a tuning."""

    def __init__(self, where: str, trials: TrialIndex, space: Space, name: str) -> None:
        """Open a storage.

        Args:
            where: A database URL, or a file.
            trials: The trials of the tuning.
            space: What varies.
            name: Name of the study.

        Raises:
            ConfigError: The storage cannot be used, or has another study of this name.
        """
        self._where = shown_storage(where)
        self._space = space
        self._settled: set[int] = set()
        with _reporting(where):
            self._storage = _open_storage(where)
            _check_owner(where, self._storage, name, trials.id)
            self._study = _open_study(self._storage, name)
            self._study_id = self._storage.get_study_id_from_name(name)
            self._study.set_user_attr(ID_KEY, trials.id)

    def update(self, trials: TrialIndex) -> None:
        """Add what is missing in the storage.

        Raises:
            TrainingError: The storage cannot be written.
        """
        from optuna.trial import TrialState, create_trial

        try:
            with quiet():
                found = self._study.get_trials(deepcopy=False)
                if len(found) > len(trials):
                    raise TrainingError(
                        f"The storage {self._where} has {len(found)} trials, but the tuning only "
                        f"{len(trials)}: use another storage, since something else writes to it."
                    )
                for trial in trials.trials[len(found) :]:
                    self._study.add_trial(
                        create_trial(
                            state=TrialState.RUNNING,
                            params=to_optuna(self._space, trial.params),
                            distributions=distributions(self._space),
                            user_attrs={"folder": trial.folder, "origin": trial.origin},
                        )
                    )
                for trial in trials:
                    if trial.number not in self._settled and trial.status is not TrialStatus.OPEN:
                        self._settle(trial)
                        self._settled.add(trial.number)
        except TrainingError:
            raise
        except Exception as error:  # each database has errors of its own
            raise TrainingError(
                f"The storage {self._where} cannot be written ({error_text(error)}). No trial is "
                "lost: the next session with this storage completes it."
            ) from error

    def _settle(self, trial: Trial) -> None:
        """Record the outcome of a trial, unless the storage has it."""
        from optuna.trial import TrialState

        found = self._study.get_trials(deepcopy=False)[trial.number]
        if found.state.is_finished():
            return
        storage = self._storage
        id_ = storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)
        for point, score in trial.points.items():
            if point not in found.intermediate_values:
                storage.set_trial_intermediate_value(id_, point, score)
        storage.set_trial_user_attr(id_, "scores", list(trial.scores))
        states = {
            TrialStatus.COMPLETE: TrialState.COMPLETE,
            TrialStatus.PRUNED: TrialState.PRUNED,
            TrialStatus.FAILED: TrialState.FAIL,
        }
        value = trial.value if trial.status is TrialStatus.COMPLETE else None
        self._study.tell(trial.number, value, state=states[trial.status])


def check_storage(where: str, name: str) -> None:
    """Check that a storage can be used for a new tuning, before anything is written.

    Raises:
        ConfigError: It cannot be opened, or has a study of this name.
    """
    with _reporting(where):
        _check_owner(where, _open_storage(where), name, None)


@contextmanager
def _reporting(where: str) -> Iterator[None]:
    """Turn errors of a storage into one sentence."""
    try:
        with quiet():
            yield
    except ConfigError:
        raise
    except Exception as error:  # each database has errors of its own
        raise ConfigError(
            f"The storage {shown_storage(where)} cannot be opened ({error_text(error)}): check "
            "that it exists, and that you may write to it."
        ) from None


def _check_owner(where: str, storage: BaseStorage, name: str, id_: str | None) -> None:
    """Reject a study of this name, unless it is empty or belongs to the tuning with this id."""
    import optuna

    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:  # there is none
        return
    owner = study.user_attrs.get(ID_KEY)
    if owner is None and not study.get_trials(deepcopy=False):
        return
    if owner is None or owner != id_:
        whose = "another tuning" if owner is not None else "something else"
        raise ConfigError(
            f"The storage {shown_storage(where)} has a study {shown(name)} that belongs to "
            f"{whose}: use another storage, or give this tuning another folder or name."
        )


def _open_study(storage: BaseStorage, name: str) -> Study:
    import optuna

    return optuna.create_study(
        study_name=name, storage=storage, direction="maximize", load_if_exists=True
    )


def _open_storage(where: str) -> BaseStorage:
    """Open a database or a journal file.

    Storages whose records can run code when they are read are refused.
    """
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    if "://" not in where:
        path = Path(where)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ConfigError(
                f"storage = {shown(where)}: should be a database URL such as "
                "postgresql+psycopg://host/name, or a file in an existing folder."
            )
        cut_torn_line(path)
        return JournalStorage(JournalFileBackend(where, JournalFileOpenLock(where)))
    dialect = where.partition("://")[0].partition("+")[0]
    if dialect in ("redis", "rediss"):
        raise ConfigError(
            f"storage = {shown(shown_storage(where))}: Redis storages are not supported, since "
            "reading them could run code. Use a database, or a file."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return RDBStorage(where)
    except ImportError:
        raise ConfigError(_driver_advice(where, dialect)) from None


def _driver_advice(where: str, dialect: str) -> str:
    """Return what to do if the driver of a database is missing."""
    if dialect not in _DRIVERS:
        return f"storage = {shown(shown_storage(where))}: no driver for this database is installed."
    start, package = _DRIVERS[dialect]
    return (
        f"storage = {shown(shown_storage(where))}: the driver is not installed. Install it with "
        f"pip install {package!r}, and let the URL start with {start}."
    )


def without_passwords(command: Sequence[str]) -> list[str]:
    """Return a command without the passwords of storages, so that it can be recorded."""
    return [_without_password(word) for word in command]


def _without_password(word: str) -> str:
    option, equals, where = word.partition("=")
    if option == "--storage" and equals:
        return f"{option}={shown_storage(where)}"
    return shown_storage(word) if "://" in word else word
