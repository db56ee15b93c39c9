"""The report of a tuning: one HTML file without references to anything outside."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from rl_training.boundary.writing import write_output
from rl_training.study.index import StudyIndex
from rl_training.study.report.page import escape, section_html, static_page, table_html
from rl_training.study.report.tables import Cell, Table, number_cell, text_cell
from rl_training.study.report.writing import output_file
from rl_training.text import counted
from rl_training.tuning.charts import STYLE, history_chart, importance_chart, parallel_chart
from rl_training.tuning.config import TuningPlan, plan_tuning
from rl_training.tuning.folder import read_tuning
from rl_training.tuning.judging import known_trials
from rl_training.tuning.optuna_memory import MIN_IMPORTANCE_TRIALS, importances, require_optuna
from rl_training.tuning.trials import Trial, TrialIndex, TrialStatus
from rl_training.tuning.winner import (
    best_and_validation,
    number_text,
    params_text,
    validation_lines,
)
from rl_training.version import __version__


def write_tuning_report(
    folder: str | Path, out: str | Path | None = None, *, command: Sequence[str] = ()
) -> Path:
    """Write the report of a tuning, and return the page.

    Args:
        folder: Folder of the tuning.
        out: The page to write; by default ``report.html`` in the folder.
        command: The command to show as the one that writes the report.
    """
    require_optuna()
    file = output_file([folder], out)
    trials, description = read_tuning(Path(folder))
    plan, index = plan_tuning(description, is_named=False), StudyIndex.open(folder)
    written = shlex.join(command or ["rl-training", "study", "report", str(folder)])
    write_output(file, tuning_page(plan, index, trials, written))
    return file


def tuning_page(plan: TuningPlan, index: StudyIndex, trials: TrialIndex, command: str) -> bytes:
    """Return the page."""
    description = plan.description
    done = [trial for trial in trials if trial.status is not TrialStatus.OPEN]
    facts = [
        f"{len(done)} of {counted(description.trials, 'trial')} done",
        f"{counted(len(description.seeds), 'seed')} each",
        f"sampler {description.sampler}, pruner {description.pruner}",
        datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        f"rl_training {__version__}",
    ]
    sections = _sections(plan, index, trials, command)
    return static_page(f"Tuning {index.name}", facts, sections, STYLE)


def _sections(
    plan: TuningPlan, index: StudyIndex, trials: TrialIndex, command: str
) -> Iterator[str]:
    best, found = best_and_validation(plan, index, trials)
    if best is None:
        yield section_html("result", "Result", "<p>No trial is complete yet.</p>\n")
    else:
        lines = [
            f"Trial {best.number} has the best value, {number_text(best.value)}: "
            f"{params_text(best.params)}.",
            "That value is the best of many, so it is lucky. The scores on fresh seeds are not.",
            *validation_lines(plan, best, found),
        ]
        yield section_html("result", "Result", *(f"<p>{escape(line)}</p>\n" for line in lines))
    ordered = list(trials)
    objective = plan.objective
    yield section_html(
        "history",
        "Best so far",
        _chart(history_chart(ordered)),
        _note(
            f"Value of each trial: {objective.kind.title}, combined over seeds by "
            f"{objective.aggregate}. The line is the best complete trial so far; empty circles "
            "are trials that were stopped early. Point at a circle to see its settings."
        ),
    )
    shares = importances(plan.space, known_trials(trials, len(ordered)))
    if shares is None:
        few = f"Importances need {MIN_IMPORTANCE_TRIALS} complete trials."
        yield section_html("importance", "Importances", f"<p>{few}</p>\n")
    else:
        yield section_html(
            "importance",
            "Importances",
            _chart(importance_chart(shares)),
            _note(
                "Share of each key in the differences between complete trials (PED-ANOVA). With "
                "few trials, only large differences mean something."
            ),
        )
    yield section_html(
        "parallel",
        "Settings",
        _chart(parallel_chart(plan.space, ordered)),
        _note("A line for each trial: the better, the stronger; dashed if it was stopped early."),
    )
    yield section_html("trials", "Trials", table_html(None, trial_table(plan, ordered), bare=True))
    commands = dict.fromkeys(shlex.join(session.command) for session in index.sessions)
    yield section_html(
        "again",
        "Reproduce",
        f"<pre>{escape(chr(10).join(commands))}</pre>\n",
        f"<p>This report was written with:</p>\n<pre>{escape(command)}</pre>\n",
    )


def _chart(svg: str) -> str:
    if not svg:
        return "<p>No trial has a value yet.</p>\n"
    return f'<figure><div class="plot">{svg}</div></figure>\n'


def _note(words: str) -> str:
    return f'<p class="small">{escape(words)}</p>\n'


def trial_table(plan: TuningPlan, trials: Sequence[Trial]) -> Table:
    """Return a row for each trial, the best ones first."""
    keys = list(plan.space.dimensions)
    ranked = sorted(
        trials,
        key=lambda t: (t.status is not TrialStatus.COMPLETE, -(t.value or 0.0), t.number),
    )
    rows = [
        [
            Cell(str(trial.number), float(trial.number)),
            text_cell(trial.status.value),
            number_cell(trial.value, 1),
            *(text_cell(params_text({"": trial.params[key]}).removeprefix("=")) for key in keys),
            text_cell(", ".join(number_text(score) for score in trial.scores)),
            text_cell(trial.reason or ""),
        ]
        for trial in ranked
    ]
    heads = ["trial", "status", "value", *keys, "scores", "reason"]
    return Table("trials", "Trials", heads, rows, texts=frozenset({1, len(heads) - 1}))
