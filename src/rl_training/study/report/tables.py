"""The tables of a report, for the page and as Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.boundary.yaml_codec import yaml_text
from rl_training.statistics import Estimate
from rl_training.study.index import StudyGroup, StudyIndex
from rl_training.study.records import RunStatus
from rl_training.study.report.analysis import (
    STATISTIC_NAMES,
    Analysis,
    PairComparison,
    Speed,
    scored_labels,
)
from rl_training.study.report.results import RunResult
from rl_training.text import counted, duration, printable, shorten

NONE = "–"
UNRELIABLE = "†"
UNRELIABLE_NOTE = "† The interval is unreliable, because there are fewer than five runs."
ALL_TASKS = "all tasks"

MAX_SETTINGS_LABELS = 24
"""Number of labels in the table of settings."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    value: float | None = None
    """Number by which rows are sorted."""
    is_best: bool = False
    label: str | None = None
    """The label that the cell names, whose color it shows."""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    name: str
    """Name of its files, and its id on the page."""
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)
    texts: frozenset[int] = frozenset({0})
    """Columns of text; the others are numbers."""


def text_cell(text: Any) -> Cell:
    """Return a cell of text on one line."""
    return Cell(shorten(printable(str(text), keep=""), 200))


def label_cell(label: str) -> Cell:
    """Return a cell that names a label."""
    return Cell(printable(label, keep=""), label=label)


def number_cell(value: float | None, digits: int = 0, *, unit: str = "") -> Cell:
    """Return a cell with a number; a dash if there is none."""
    if value is None or math.isnan(value):
        return Cell(NONE)
    return Cell(number_text(value, digits) + unit, value)


def estimate_cell(found: Estimate | None, digits: int, *, is_best: bool = False) -> Cell:
    """Return a cell with an estimate and its interval."""
    if found is None:
        return Cell(NONE)
    return Cell(estimate_text(found, digits), found.value, is_best)


# --- Numbers ------------------------------------------------------------------------


def number_text(value: float, digits: int) -> str:
    """Return a number with thousands separators and a real minus sign."""
    if math.isinf(value) or abs(value) >= 1e15:
        return f"{value:.3g}".replace("-", "−")
    text = f"{value:,.{digits}f}"
    if text.startswith("-") and not text.strip("-0.,"):  # a zero has no sign
        text = text[1:]
    return text.replace("-", "−")


def estimate_text(found: Estimate, digits: int) -> str:
    """Return a value with its interval, marked if the interval is unreliable."""
    value = number_text(found.value, digits)
    if math.isnan(found.low):
        return value
    mark = "" if found.reliable else f" {UNRELIABLE}"
    return f"{value} [{number_text(found.low, digits)}, {number_text(found.high, digits)}]{mark}"


def digits_for(values: Iterable[float]) -> int:
    """Return how many decimals numbers of this size need: about four significant digits."""
    sizes = [abs(value) for value in values if math.isfinite(value)]
    largest = max(sizes, default=0.0)
    if largest == 0:
        return 1
    return int(min(8, max(0, 3 - math.floor(math.log10(largest)))))


def p_text(value: float) -> str:
    """Return a p-value; small ones as a bound."""
    if math.isnan(value):
        return NONE
    return "<0.001" if value < 0.001 else f"{value:.3f}"


# --- Results ------------------------------------------------------------------------


def result_tables(analysis: Analysis) -> list[Table]:
    """Return the tables of results, most important first."""
    tables = [summary_table(analysis)]
    if len(analysis.aggregates) and analysis.tasks:
        tables.append(aggregate_table(analysis))
    if analysis.comparisons:
        tables.append(comparison_table(analysis))
    if analysis.speeds:
        tables.append(speed_table(analysis))
    return tables


def summary_table(analysis: Analysis) -> Table:
    """Return the scores of each label on each task."""
    results = analysis.results
    notes = [
        f"Mean {analysis.score_name} of each run's {_score_words(analysis)} with its "
        f"{analysis.options.confidence:.0%} confidence interval; {_size_words(analysis)}."
    ]
    if any(found.is_best for found in analysis.by_task.values()):
        notes.append(
            "Bold: the best mean, and means that do not differ significantly from it (Welch's "
            f"t-test, Holm's correction for {counted(analysis.tested, 'comparison')})."
        )
    if len(results.tasks) == 1:
        return _single_task_table(analysis, notes)
    if len(results.tasks) <= len(results.labels) or len(results.labels) > 12:
        heads = ["Label", *map(_plain, results.tasks)]
        rows = [
            [label_cell(label), *(_score_cell(analysis, label, task) for task in results.tasks)]
            for label in results.labels
        ]
    else:
        heads = ["Task", *map(_plain, results.labels)]
        rows = [
            [text_cell(task), *(_score_cell(analysis, label, task) for label in results.labels)]
            for task in results.tasks
        ]
    return Table("summary", "Scores", heads, rows, notes)


def _single_task_table(analysis: Analysis, notes: list[str]) -> Table:
    results = analysis.results
    (task,) = results.tasks
    digits = _task_digits(analysis, task)
    rows = []
    for label in results.labels:
        found = analysis.by_task[label, task]
        scores = found.scores
        ends = (float(scores.min()), float(scores.max())) if len(scores) else (None, None)
        rows.append(
            [
                label_cell(label),
                Cell(f"{len(scores)} of {found.runs}", len(scores)),
                estimate_cell(found.mean, digits, is_best=found.is_best),
                estimate_cell(found.iqm, digits),
                *(number_cell(end, digits) for end in ends),
            ]
        )
    heads = ["Label", "Runs", "Mean", "IQM", "Lowest", "Highest"]
    return Table("summary", f"Scores on {_plain(task)}", heads, rows, notes)


def _score_cell(analysis: Analysis, label: str, task: str) -> Cell:
    found = analysis.by_task.get((label, task))
    if found is None:
        return Cell(NONE)
    return estimate_cell(found.mean, _task_digits(analysis, task), is_best=found.is_best)


def _task_digits(analysis: Analysis, task: str) -> int:
    values = (
        found.mean.value
        for (_, other), found in analysis.by_task.items()
        if other == task and found.mean is not None
    )
    return digits_for(values)


def _score_words(analysis: Analysis) -> str:
    return {"last": "last evaluation", "best": "best evaluation", "area": "training"}[
        analysis.results.score
    ]


def _size_words(analysis: Analysis) -> str:
    sizes = [len(found.scores) for found in analysis.by_task.values()]
    low, high = min(sizes, default=0), max(sizes, default=0)
    return f"{counted(low, 'run')} each" if low == high else f"{low} to {counted(high, 'run')} each"


def aggregate_table(analysis: Analysis) -> Table:
    """Return the statistics over all tasks."""
    every = [found for estimates in analysis.aggregates.values() for found in estimates.values()]
    digits = 3 if analysis.is_normalized else digits_for(found.value for found in every)
    rows = [
        [label_cell(label), *(estimate_cell(found.get(s), digits) for s in analysis.statistics)]
        for label, found in analysis.aggregates.items()
    ]
    notes = [
        f"{counted(len(analysis.tasks), 'task')}, {analysis.options.confidence:.0%} intervals; "
        f"stratified bootstrap with {analysis.resamples:,} resamples unless stated otherwise."
    ]
    if analysis.is_normalized:
        sources = dict.fromkeys(
            f"{task}: {ref.random:g} and {ref.expert:g}"
            + (f" ({ref.source})" if ref.source else "")
            for task in analysis.tasks[:20]
            if (ref := analysis.results.references[task])
        )
        notes.append(
            "Scores are normalized: 0 is a random policy and 1 an expert. Their returns are "
            f"{'; '.join(sources)}{'; …' if len(analysis.tasks) > 20 else ''}."
        )
        notes.append("Lower is better for the optimality gap, the distance to a score of 1.")
    heads = ["Label", *(STATISTIC_NAMES[s] for s in analysis.statistics)]
    title = f"Aggregate {analysis.scale}"
    return Table("aggregates", title, heads, rows, notes)


def comparison_table(analysis: Analysis) -> Table:
    """Return the comparisons of labels."""
    several = len(analysis.results.tasks) > 1
    heads = [*(["Task"] if several else []), "A", "B", "A − B", "p (Welch)", "p (Holm)"]
    heads += ["p (permutation)", "P(A better than B)"]
    rows = []
    for pair in analysis.comparisons:
        row = [text_cell(pair.task or ALL_TASKS)] if several else []
        rows.append([*row, *_comparison_cells(analysis, pair)])
    score = f"{analysis.scale} over all tasks" if analysis.tasks and several else ""
    notes = [
        f"{counted(analysis.tested, 'comparison')}. Difference of means with its "
        f"{analysis.options.confidence:.0%} interval (Welch); p (Holm) is corrected for all "
        "comparisons of this table, and differences with p (Holm) < 0.05 are bold; p "
        "(permutation) is not corrected."
    ]
    if score:
        notes.append(f"{ALL_TASKS.capitalize()}: differences of the {score}.")
    texts = frozenset({0, 1, 2} if several else {0, 1})
    return Table("comparisons", "Comparisons", heads, rows, notes, texts)


def _comparison_cells(analysis: Analysis, pair: PairComparison) -> list[Cell]:
    found = pair.difference
    if pair.task is None:
        digits = 3 if analysis.is_normalized else digits_for([found.difference])
    else:
        digits = _task_digits(analysis, pair.task)
    difference = Estimate(found.difference, found.low, found.high, "student")
    return [
        label_cell(pair.first),
        label_cell(pair.second),
        estimate_cell(difference, digits, is_best=pair.is_significant),
        *(
            Cell(p_text(value), None if math.isnan(value) else value)
            for value in (found.p_value, pair.corrected_p, pair.permutation_p)
        ),
        estimate_cell(pair.improvement, 2),
    ]


def speed_table(analysis: Analysis) -> Table:
    """Return how fast the labels learn."""
    several, threshold = len(analysis.results.tasks) > 1, analysis.threshold
    heads = ["Label", *(["Task"] if several else []), "Mean over training"]
    heads += ["Steps to threshold"] if threshold is not None else []
    heads.append("Time per run")
    rows = [_speed_row(analysis, speed, several) for speed in analysis.speeds]
    notes = [
        f"Mean over training: the area under the curve of the {analysis.score_name}, divided by "
        "its length."
    ]
    if threshold is not None:
        kind = "normalized score" if analysis.results.references else analysis.score_name
        notes.append(
            f"Steps to threshold: median step of the first evaluation with a {kind} of "
            f"{threshold:g}, and how many runs reach it; runs that do not reach it count as "
            "infinitely slow."
        )
    texts = frozenset({0, 1} if several else {0})
    return Table("speed", "Speed of learning", heads, rows, notes, texts)


def _speed_row(analysis: Analysis, speed: Speed, several: bool) -> list[Cell]:
    row = [label_cell(speed.label), *([text_cell(speed.task)] if several else [])]
    row.append(estimate_cell(speed.area, _task_digits(analysis, speed.task)))
    if analysis.threshold is not None:
        steps = NONE if speed.steps is None else number_text(speed.steps, 0)
        row.append(Cell(f"{steps} ({speed.reached} of {speed.runs})", speed.steps))
    time = NONE if speed.seconds is None else duration(speed.seconds)
    return [*row, Cell(time, speed.seconds)]


# --- Runs ---------------------------------------------------------------------------


def run_table(analysis: Analysis, results: Sequence[RunResult]) -> Table:
    """Return a row for each run."""
    several = len(analysis.results.studies) > 1
    heads = ["Label", "Task", "Seed", "Status", "Score", "Steps", "Time", "Attempts", "Machine"]
    digits = {task: _task_digits(analysis, task) for task in analysis.results.tasks}
    rows = []
    for result in results:
        run = result.run
        steps = result.curve.steps[-1] if result.curve is not None else run.step
        status = run.status.value + (f": {run.reason}" if _has_reason(result) else "")
        rows.append(
            [
                label_cell(result.label),
                text_cell(result.task),
                number_cell(run.seed),
                Cell(shorten(printable(status, keep=""), 120)),
                number_cell(result.score, digits[result.task]),
                number_cell(float(steps)),
                Cell(duration(run.seconds), run.seconds) if run.seconds else Cell(NONE),
                number_cell(run.attempts),
                text_cell(run.host or NONE),
            ]
        )
    notes = [f"Score: {analysis.score_name} of the {_score_words(analysis)}."]
    where = "studies" if several else "study"
    total = len(analysis.results.runs)
    if len(results) < total:
        notes.append(f"The first {len(results):,} of {total:,} runs of the {where}.")
    return Table("runs", "Runs", heads, rows, notes, frozenset({0, 1, 3, 8}))


def _has_reason(result: RunResult) -> bool:
    return bool(result.run.reason) and result.run.status is RunStatus.STOPPED


def failure_table(results: Sequence[RunResult], most: int = 200) -> Table | None:
    """Return the failed attempts, or None if there are none."""
    failures = [(result, failure) for result in results for failure in result.run.failures]
    if not failures:
        return None
    rows = [
        [
            label_cell(result.label),
            text_cell(result.task),
            number_cell(result.run.seed),
            number_cell(failure.attempt),
            number_cell(failure.step),
            text_cell(result.run.status.value),
            Cell(shorten(printable(failure.reason, keep=""), 500)),
        ]
        for result, failure in failures[:most]
    ]
    heads = ["Label", "Task", "Seed", "Attempt", "Last checkpoint", "Run is now", "Reason"]
    notes = [f"{counted(len(failures), 'failed attempt')}."]
    if len(failures) > most:
        notes.append(f"The first {most} are shown.")
    return Table("failures", "Failures", heads, rows, notes, frozenset({0, 1, 5, 6}))


# --- Settings and machines ------------------------------------------------------------


def settings_table(analysis: Analysis) -> Table | None:
    """Return the settings in which labels differ, or None if there are none."""
    configs = label_settings(analysis)
    labels = list(configs)[:MAX_SETTINGS_LABELS]
    shown = [configs[label] for label in labels]
    keys = list(dict.fromkeys(key for config in shown for key in config))
    rows = []
    for key in keys:
        values = [config.get(key, NONE) for config in shown]
        if len(set(values)) > 1:
            rows.append([text_cell(key), *(Cell(shorten(value, 120)) for value in values)])
    if not rows:
        return None
    notes = [f"A dash ({NONE}) means that the algorithm does not have the key."]
    if len(configs) > len(labels):
        notes.append(f"The first {len(labels)} of {len(configs)} labels.")
    heads = ["Key", *map(_plain, labels)]
    return Table(
        "settings", "Settings that differ", heads, rows, notes, frozenset(range(len(heads)))
    )


def label_settings(analysis: Analysis) -> dict[str, dict[str, str]]:
    """Return the settings of each label as text; values of different tasks are listed."""
    from rl_training.study.naming import is_task_key

    groups: dict[str, dict[str, StudyGroup]] = {}
    for result in analysis.results.runs:
        groups.setdefault(result.label, {})[result.run.group.folder] = result.run.group
    found: dict[str, dict[str, str]] = {}
    for label, members in groups.items():
        values: dict[str, list[str]] = {}
        for group in members.values():
            for key, value in _flat(group.config):
                if not is_task_key(key) and key not in ("logging", "tags"):
                    values.setdefault(key, []).append(printable(yaml_text(value), keep=""))
        found[label] = {
            key: ", ".join(dict.fromkeys(texts)) for key, texts in sorted(values.items())
        }
    return found


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if key == "algo_kwargs" and isinstance(value, Mapping):
            yield from value.items()
        elif key not in ("seed", "output_dir"):
            yield key, value


def host_table(studies: Sequence[StudyIndex], results: Sequence[RunResult]) -> Table | None:
    """Return the machines, or None if none is known."""
    hosts = {key: facts for study in studies for key, facts in study.hosts.items()}
    counts: dict[str, int] = {}
    for result in results:
        if result.run.host is not None:
            counts[result.run.host] = counts.get(result.run.host, 0) + 1
    used = {key: facts for key, facts in hosts.items() if key in counts}
    rows = []
    for key, facts in used.items():
        memory = facts.get("memory")
        versions = facts.get("versions")
        named = versions.items() if isinstance(versions, Mapping) else ()
        rows.append(
            [
                text_cell(key),
                number_cell(counts[key]),
                text_cell(facts.get("cpu") or NONE),
                text_cell(facts.get("cores") or NONE),
                text_cell(_gibibytes(memory)),
                text_cell(facts.get("gpu") or NONE),
                text_cell(facts.get("platform") or NONE),
                Cell(shorten(printable(", ".join(f"{k} {v}" for k, v in named), keep=""), 400)),
            ]
        )
    if not rows:
        return None
    heads = ["Machine", "Runs", "CPU", "Cores", "Memory", "GPU", "System", "Versions"]
    return Table("machines", "Machines", heads, rows, (), frozenset({0, 2, 5, 6, 7}))


def _gibibytes(memory: Any) -> str:
    return f"{memory / (1 << 30):.3g} GiB" if isinstance(memory, int | float) and memory else NONE


def _plain(text: str) -> str:
    return printable(text, keep="")


# --- Markdown and LaTeX -----------------------------------------------------------------


def _notes(table: Table) -> list[str]:
    """Return the notes of a table that is alone, without the footer of the page."""
    marked = any(UNRELIABLE in cell.text for row in table.rows for cell in row)
    return [*table.notes, *([UNRELIABLE_NOTE] if marked else [])]


def to_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    align = ["---" if index in table.texts else "---:" for index in range(len(table.heads))]
    lines = [[_markdown(head) for head in table.heads], align]
    for row in table.rows:
        lines.append([f"**{_markdown(c.text)}**" if c.is_best else _markdown(c.text) for c in row])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([text, *map(_markdown, _notes(table))]) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|<>&])", r"\\\1", printable(text, keep=""))


def to_latex(table: Table) -> str:
    """Return a table as LaTeX; it needs the package booktabs."""
    columns = "".join("l" if index in table.texts else "r" for index in range(len(table.heads)))
    lines = [
        *(f"% {printable(note, keep='')}" for note in _notes(table)),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_latex, table.heads)) + r" \\",
        r"\midrule",
        *(" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{_latex(cell.text)}}}" if cell.is_best else _latex(cell.text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "†": r"$^\dagger$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    # A bracket after a line break would be an argument.
    "[": "{[}",
    "]": "{]}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in printable(text, keep=""))


def label_order(analysis: Analysis) -> list[str]:
    """Return the labels that have scores."""
    return scored_labels(analysis.results)
