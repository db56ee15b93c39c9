"""Mutants of loggers, callbacks and the metrics of runs that stop and continue."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SESSION = "runtime/session.py"
COLLECTOR = "runtime/collector.py"
CALLBACKS = "tests/runtime/test_callback_metrics.py"
LOGGERS = "tests/runtime/loggers/test_loggers.py"

MUTANTS = [
    Mutant(
        "a final line of metrics resets the means",
        SESSION,
        "engine.metrics() if final else engine.pop_metrics()",
        "engine.pop_metrics()",
        CALLBACKS,
    ),
    Mutant(
        "episodes before a final line are counted once only",
        SESSION,
        "collector.metrics() if final else collector.pop_metrics()",
        "collector.pop_metrics()",
        CALLBACKS,
    ),
    Mutant(
        "a checkpoint keeps the lines that are only written at the end",
        SESSION,
        "before_end = self._progress() if ends else None",
        "before_end = None",
        CALLBACKS,
    ),
    Mutant(
        "own metrics that are not finite are written",
        SESSION,
        "if math.isfinite(number):",
        "if True:",
        CALLBACKS,
    ),
    Mutant(
        "episodes that ended are reported with the return of the next one",
        COLLECTOR,
        "FinishedEpisode(index, float(returns[index]), int(self._lengths[index]))",
        "FinishedEpisode(index, float(rewards[index]), int(self._lengths[index]))",
        CALLBACKS,
    ),
    Mutant(
        "a logger that fails is called again",
        "runtime/loggers/base.py",
        "            self._logger = None\n",
        "",
        LOGGERS,
    ),
    Mutant(
        "a server named by a run folder is contacted",
        "runtime/loggers/config.py",
        "place is None or (service, place) in _named or place",
        "True or place",
        LOGGERS,
    ),
    Mutant(
        "an identifier may be a path",
        "runtime/loggers/identifiers.py",
        're.fullmatch("[A-Za-z0-9_-]{1,64}", found)',
        "found",
        LOGGERS,
    ),
    Mutant(
        "a resumed table loses the columns of earlier lines",
        "runtime/loggers/csv_table.py",
        "        self._run_dir = run.run_dir\n        self._rewrite()\n",
        "        self._run_dir = run.run_dir\n",
        LOGGERS,
    ),
    Mutant(
        "any logging override names the server of a run folder",
        "experiment/config.py",
        "name_destinations(validated(LoggingConfig, given[top] or {}))",
        "name_destinations(config.logging)",
        f"{LOGGERS} -k another_override",
    ),
    Mutant(
        "a fine-tuned run has no hyperparameters",
        "runtime/loggers/tensorboard.py",
        "        if is_new:",
        "        if first is None:",
        f"{LOGGERS} -k fine_tuned_run_once",
    ),
    Mutant(
        "copies of a hook's metrics are read-only",
        SESSION,
        "        return dict, (dict(self),)",
        "        return ReadOnlyMetrics, (dict(self),)",
        f"{CALLBACKS} -k copies",
    ),
    Mutant(
        "steps past the budget are not part of the next part",
        "api/managed.py",
        "max(min(done, config.budget) + steps, done + 1)",
        "max(done + steps, done + 1)",
        f"{CALLBACKS} -k in_two_parts",
    ),
    Mutant(
        "a short part after steps past the budget is refused",
        "api/managed.py",
        "max(min(done, config.budget) + steps, done + 1)",
        "min(done, config.budget) + steps",
        f"{CALLBACKS} -k every_call",
    ),
]
