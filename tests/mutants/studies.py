"""Mutants of studies and tunings."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a run whose coordinator is gone counts as running",
        "study/index.py",
        "RunStatus.RUNNING if is_held(run.lock) else RunStatus.INTERRUPTED",
        "RunStatus.RUNNING",
        "tests/study/test_index.py -k last_attempt",
    ),
    Mutant(
        "a later report of an attempt replaces its outcome",
        "study/index.py",
        "if before is None or not RunStatus(before.status).has_ended:",
        "if True:",
        "tests/study/test_index.py -k complete_attempt",
    ),
    Mutant(
        "settings of an old label are not compared",
        "study/folder.py",
        "    if difference is not None:\n        raise ConfigError(",
        "    if False:\n        raise ConfigError(",
        "tests/study/test_folder.py -k contradiction",
    ),
    Mutant(
        "an error names the key that follows from the changed one",
        "study/differences.py",
        "key=lambda key: (key in _DERIVED, key)",
        "key=lambda key: key",
        "tests/study/test_folder.py -k names_the_key",
    ),
    Mutant(
        "a run never gives its cores back",
        "study/resources.py",
        "        self._cores += _grains(need.cpus)\n        self._memory +=",
        "        self._memory +=",
        "tests/study/test_resources.py -k never_exceeded",
    ),
    Mutant(
        "threads are not fixed when a study is planned",
        "study/planning.py",
        'if kwargs.get("num_threads") is None:',
        "if False:",
        "tests/study/test_planning.py -k threads_are_fixed",
    ),
    Mutant(
        "a bandit prefers the arms that it has tried most",
        "study/selection.py",
        "sums / counts / spread + bonus",
        "sums / counts / spread - bonus",
        "tests/study/test_selection.py -k bandit",
    ),
    Mutant(
        "the policy that looks best is not tried yet",
        "study/selection.py",
        "np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)",
        "np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)",
        "tests/study/test_selection.py -k bandit",
    ),
    Mutant(
        "a proposal depends on trials that may still be running",
        "tuning/scheduling.py",
        "known_trials(trials, known),",
        "known_trials(trials, len(trials)),",
        "tests/tuning/test_tuning.py -k workers_and_timing",
    ),
    Mutant(
        "a lucky difference is called better",
        "tuning/winner.py",
        "if found.is_better and not found.p_value < SIGNIFICANT:",
        "if False:",
        "tests/tuning/test_tuning.py -k may_be_luck",
    ),
    Mutant(
        "the best value so far may fall",
        "tuning/charts.py",
        "if trial.status is TrialStatus.COMPLETE and _value(trial) > best:",
        "if trial.status is TrialStatus.COMPLETE:",
        "tests/tuning/test_charts.py -k never_falls",
    ),
]
