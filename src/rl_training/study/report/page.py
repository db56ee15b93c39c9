"""The page of a report: one HTML file without references to anything outside."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from rl_training.api.figures import COLORS
from rl_training.errors import ConfigError
from rl_training.study.index import StudyIndex
from rl_training.study.records import RunStatus
from rl_training.study.report.analysis import Analysis
from rl_training.study.report.charts import chart_data, drawn_tasks
from rl_training.study.report.tables import (
    UNRELIABLE_NOTE,
    Cell,
    Table,
    aggregate_table,
    comparison_table,
    failure_table,
    host_table,
    run_table,
    settings_table,
    speed_table,
    summary_table,
)
from rl_training.text import counted, printable
from rl_training.version import __version__

MAX_PAGE = 6_000_000
"""Maximum number of bytes of a page."""

NUMBERS = (300_000, 100_000, 30_000)
"""How many numbers the lines of the charts have; fewer if the page would be too large."""

MAX_ROWS = 500
"""Maximum number of rows of a table on the page; the CSV files have all of them."""

LONG = 44
"""Text with more characters is wrapped."""

MAX_SESSIONS = 20
"""Maximum number of recorded commands."""

DARK_BLACK = "#F0F0F0"
"""Color of black lines on a dark page."""

_ASSETS = resources.files("rl_training") / "assets" / "report"


@dataclass(frozen=True)
class PageFacts:
    """What a page says about itself."""

    title: str
    created: str
    """Time at which the report was written."""
    command: str
    """The command that writes it again."""
    tables: str | None = None
    """Folder of the tables, relative to the page."""
    refresh: int | None = None
    """Seconds between two refreshes if a server shows the page; None for a file."""
    descriptions: Mapping[str, str] | None = None
    """The study files, by the name of the study."""


def report_page(analysis: Analysis, facts: PageFacts) -> bytes:
    """Return the page, with fewer points in its curves if it would be too large otherwise.

    Raises:
        ConfigError: The page is too large even then.
    """
    for numbers in NUMBERS:
        page = "".join(_page(analysis, facts, numbers)).encode("utf-8", errors="replace")
        if len(page) < MAX_PAGE:
            return page
    raise ConfigError(
        f"The report would have {len(page):,} bytes, but at most {MAX_PAGE:,} are allowed: report "
        "fewer labels and tasks in one study."
    )


def error_page(message: str, refresh: int) -> bytes:
    """Return a page with an error, which is loaded again after some seconds."""
    style = "\n" + asset("report.css")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f'style-src {_hash(style)}; img-src data:"><meta http-equiv="refresh" content="{refresh}">'
        f'<link rel="icon" href="data:,"><title>Report</title><style>{style}</style></head>'
        f'<body><main><section class="notes"><p>{escape(message)}</p></section></main></body>'
        "</html>"
    ).encode("utf-8", errors="replace")


# --- HTML ---------------------------------------------------------------------------


def escape(text: str) -> str:
    """Return text for HTML, also for attributes in double quotes; control characters are shown."""
    return html.escape(printable(text), quote=True)


def embedded_json(value: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def asset(name: str) -> str:
    """Return the text of a packaged file."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def static_page(title: str, facts: Sequence[str], sections: Iterable[str], style: str) -> bytes:
    """Return a page without a script; ``style`` is added to the style sheet of reports."""
    rules = "\n" + asset("report.css") + style
    policy = f"default-src 'none'; style-src {_hash(rules)}; img-src data:; base-uri 'none'"
    shown = "".join(f"<span>{escape(fact)}</span>" for fact in facts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{rules}</style>\n</head>\n<body>\n"
        f'<header>\n<h1>{escape(title)}</h1>\n<p class="facts">{shown}</p>\n</header>\n'
        f"<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    ).encode("utf-8", errors="replace")


def section_html(name: str, title: str, *parts: str) -> str:
    """Return a section of a page."""
    return "".join(_section(name, parts, title))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _style() -> str:
    """Return the style sheet with the colors of the labels."""
    rules = [f".c{number} {{ --c: {color}; }}" for number, color in enumerate(COLORS)]
    black = [f".c{number}" for number, color in enumerate(COLORS) if color == "#000000"]
    dark = [f"{{}} {name} {{{{ --c: {DARK_BLACK}; }}}}" for name in black]
    rules += [rule.format(':root[data-theme="dark"]') for rule in dark]
    automatic = " ".join(rule.format(':root:not([data-theme="light"])') for rule in dark)
    rules.append(f"@media screen and (prefers-color-scheme: dark) {{ {automatic} }}")
    rules += [f"@media print {{ :root {name} {{ --c: #000 !important; }} }}" for name in black]
    return "\n" + asset("report.css") + "\n".join(rules) + "\n"


def _page(analysis: Analysis, facts: PageFacts, numbers: int) -> Iterator[str]:
    style, script = _style(), "\n" + asset("report.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"img-src data:; connect-src {chr(39)}{'self' if facts.refresh else 'none'}{chr(39)}; "
        "base-uri 'none'; form-action 'none'"
    )
    live = f' data-live="{facts.refresh}"' if facts.refresh else ""
    data = chart_data(analysis, numbers) | {"colors": len(COLORS)}
    yield f'<!doctype html>\n<html lang="en"{live}>\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
    yield f"<title>{escape(facts.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    yield from _header(analysis, facts)
    yield _toolbar(analysis)
    yield "<main>\n"
    yield from _sections(analysis, facts)
    yield "</main>\n"
    yield from _footer(facts)
    yield f'<script type="application/json" id="data">{embedded_json(data)}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _header(analysis: Analysis, facts: PageFacts) -> Iterator[str]:
    results = analysis.results
    ended = sum(result.has_ended for result in results.runs)
    running = sum(result.run.status is RunStatus.RUNNING for result in results.runs)
    words = [
        counted(len(results.labels), "label"),
        counted(len(results.tasks), "task"),
        f"{ended:,} of {len(results.runs):,} {'run' if len(results.runs) == 1 else 'runs'} ended",
        *([f"{running} running"] if running else []),
        facts.created,
        f"rl_training {__version__}",
    ]
    yield f"<header>\n<h1>{escape(facts.title)}</h1>\n"
    yield f'<p class="facts">{"".join(f"<span>{escape(word)}</span>" for word in words)}</p>\n'
    if facts.refresh:
        yield '<p class="status" id="live">Live</p>\n'
    yield "<nav>"
    yield "".join(f'<a href="#{name}">{title}</a>' for name, title in _contents(analysis))
    yield "</nav>\n</header>\n"


def _contents(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the ids and titles of the sections."""
    yield "scores", "Scores"
    yield "curves", "Learning curves"
    if analysis.aggregates:
        yield "all-tasks", "Aggregates"
    if analysis.comparisons:
        yield "compared", "Comparisons"
    if analysis.speeds:
        yield "learning-speed", "Speed"
    yield from (("all-runs", "Runs"), ("setup", "Settings"), ("again", "Reproduce"))


def _toolbar(analysis: Analysis) -> str:
    return (
        '<div class="toolbar">\n<div class="chips" role="group" aria-label="Labels"></div>\n'
        '<div class="controls hidden">'
        '<span class="segments" role="group" aria-label="Horizontal axis">'
        '<button type="button" data-axis="steps">Steps</button>'
        '<button type="button" data-axis="time">Time</button></span>'
        '<button type="button" id="seeds" title="Draw a line for each run">Runs</button>'
        '<button type="button" id="theme" title="Switch between light and dark">Theme</button>'
        "</div>\n</div>\n"
        "<noscript><p>The charts need JavaScript, which is part of this file. The tables do not."
        "</p></noscript>\n"
    )


def _sections(analysis: Analysis, facts: PageFacts) -> Iterator[str]:
    if analysis.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in analysis.notes)
        yield f'<section class="notes" id="notes"><ul>{items}</ul></section>\n'
    yield from _section("scores", [table_html(analysis, summary_table(analysis))])
    yield from _section("curves", _curves(analysis), "Learning curves")
    if analysis.aggregates:
        yield from _section("all-tasks", _aggregates(analysis), _aggregate_title(analysis))
    if analysis.comparisons:
        yield from _section("compared", _comparisons(analysis), "Comparisons")
    if analysis.speeds:
        yield from _section("learning-speed", [table_html(analysis, speed_table(analysis))])
    yield from _section("all-runs", _runs(analysis))
    yield from _section("setup", _setup(analysis), "Settings and machines")
    yield from _section("again", _reproduction(analysis, facts), "Reproduce")


def _section(name: str, parts: Iterable[str], title: str | None = None) -> Iterator[str]:
    head = "" if title is None else f"<h2>{escape(title)}</h2>\n"
    yield f'<section id="{name}">\n{head}'
    yield from parts
    yield "</section>\n"


def _figure(name: str, title: str | None, caption: str = "") -> str:
    head = "" if title is None else f"<h3>{escape(title)}</h3>"
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure id="{name}">{head}<div class="plot"></div>{note}</figure>\n'


# --- Sections -----------------------------------------------------------------------


def _curves(analysis: Analysis) -> Iterator[str]:
    tasks = drawn_tasks(analysis)
    if not tasks:
        yield "<p>No run has been evaluated yet.</p>\n"
        return
    single = " single" if len(tasks) == 1 else ""
    yield f'<div class="grid{single}">\n'
    yield from (_figure(f"task-{number}", task) for number, task in enumerate(tasks))
    yield "</div>\n"
    notes = (
        "Lines are means over runs. Bands are 95% confidence intervals of the mean at each point "
        "(Student's t), or the minimum to maximum of two runs."
    )
    hint = (
        "Drag to zoom, double-click to reset. Point at a line or a label to see its runs; click a "
        "label to hide it."
    )
    yield f'<p class="small">{escape(notes)} <span class="hint">{escape(hint)}</span></p>\n'
    if len(tasks) < len(analysis.results.tasks):
        more = f"The first {len(tasks)} of {len(analysis.results.tasks)} tasks are drawn."
        yield f'<p class="small">{escape(more)}</p>\n'


def _aggregate_title(analysis: Analysis) -> str:
    tasks = analysis.tasks
    return f"Aggregate over {counted(len(tasks), 'task')}" if len(tasks) > 1 else "Aggregates"


def _aggregates(analysis: Analysis) -> Iterator[str]:
    yield '<div class="grid narrow">\n'
    names = {"iqm": "IQM", "median": "Median", "mean": "Mean", "optimality_gap": "Optimality gap"}
    for statistic in analysis.statistics:
        lower = " (lower is better)" if statistic == "optimality_gap" else ""
        yield _figure(f"aggregate-{statistic}", names[statistic] + lower)
    yield '</div>\n<div class="grid">\n'
    if analysis.curves:
        held = "Over time, a run that has ended keeps its last score."
        yield _figure("aggregate-curve", "IQM over training", held)
    if analysis.profiles:
        better = "at most" if analysis.results.lower_is_better else "above"
        yield _figure(
            "profile", "Performance profile", f"Share of runs with a score {better} each threshold."
        )
    yield "</div>\n"
    yield _folded(
        "aggregate-table", "Table", table_html(analysis, aggregate_table(analysis), bare=True)
    )


def _comparisons(analysis: Analysis) -> Iterator[str]:
    from rl_training.study.report.charts import improvement_pairs

    if improvement_pairs(analysis):
        yield _figure(
            "improvement",
            "Probability of improvement",
            "Probability that a run of the first label is better than one of the second, averaged "
            "over tasks; ties count as half. At 0.5, neither is better.",
        )
    yield table_html(analysis, comparison_table(analysis), bare=True)


def _runs(analysis: Analysis) -> Iterator[str]:
    results = analysis.results.runs
    yield table_html(analysis, run_table(analysis, results[:MAX_ROWS]))
    failures = failure_table(results)
    if failures is None:
        yield '<h3>Failures</h3>\n<p class="small">No attempt has failed.</p>\n'
    else:
        yield table_html(analysis, failures, head="h3")


def _setup(analysis: Analysis) -> Iterator[str]:
    settings = settings_table(analysis)
    if settings is not None:
        yield table_html(analysis, settings, head="h3")
    else:
        yield '<p class="small">All labels have the same settings.</p>\n'
    machines = host_table(analysis.results.studies, analysis.results.runs)
    if machines is not None:
        yield table_html(analysis, machines, head="h3")


def _reproduction(analysis: Analysis, facts: PageFacts) -> Iterator[str]:
    for study in analysis.results.studies:
        if len(analysis.results.studies) > 1:
            yield f"<h3>{escape(study.name)}</h3>\n"
        sessions = study.sessions[:MAX_SESSIONS]
        if sessions:
            yield f"<p>{escape(_session_words(study))}</p>\n"
            lines = dict.fromkeys(shlex.join(session.command) for session in sessions)
            yield f"<pre>{escape(chr(10).join(lines))}</pre>\n"
        description = (facts.descriptions or {}).get(study.name)
        if description:
            name = f"file-{analysis.results.studies.index(study)}"
            yield _folded(name, "Study file", f"<pre>{escape(description)}</pre>\n")
    yield f"<p>This report was written with:</p>\n<pre>{escape(facts.command)}</pre>\n"
    if facts.tables is not None:
        where = f"The tables are in {facts.tables} as CSV, Markdown and LaTeX."
        yield f'<p class="small">{escape(where)}</p>\n'


def _session_words(study: StudyIndex) -> str:
    """Describe when, where and with which code a study was run."""
    first, last = study.sessions[0], study.sessions[-1]
    versions = ", ".join(dict.fromkeys(session.version for session in study.sessions))
    states = [session.git for session in study.sessions if session.git]
    commits = dict.fromkeys(_commit(git) for git in states if git.get("commit"))
    when = first.time if first is last else f"{first.time} to {last.time}"
    sessions = counted(len(study.sessions), "session")
    code = f", commit {', '.join(commits)}" if commits else ""
    return f"{sessions}, {when}, rl_training {versions}{code}:"


def _commit(git: Mapping[str, Any]) -> str:
    return str(git["commit"])[:10] + (" with uncommitted changes" if git.get("dirty") else "")


def _footer(facts: PageFacts) -> Iterator[str]:
    yield "<footer>\n<p>"
    yield (
        "IQM: mean of the middle half of all runs. Optimality gap: how far runs are below a score "
        "of 1 on average. Intervals, profiles and the probability of improvement follow "
        f"rliable (Agarwal et al., 2021). {UNRELIABLE_NOTE}"
    )
    yield "</p>\n</footer>\n"


# --- Tables -------------------------------------------------------------------------


def _folded(name: str, title: str, content: str) -> str:
    return f'<details id="{name}"><summary>{escape(title)}</summary>\n{content}</details>\n'


def table_html(
    analysis: Analysis | None, table: Table, *, head: str = "h2", bare: bool = False
) -> str:
    """Return a table with its notes; ``bare`` leaves out the title.

    ``analysis`` has the labels whose colors the table shows.
    """
    notes = list(table.notes)
    if len(table.rows) > MAX_ROWS:
        notes.append(f"The first {MAX_ROWS} of {len(table.rows):,} rows; the CSV file has all.")
        table = replace(table, rows=table.rows[:MAX_ROWS])
    drawn = analysis.drawn if analysis is not None else ()
    places = {label: number for number, label in enumerate(drawn)}
    title = "" if bare else f"<{head}>{escape(table.title)}</{head}>\n"
    heads = "".join(
        f'<th scope="col"{_text_class(index, table)}>{escape(name)}</th>'
        for index, name in enumerate(table.heads)
    )
    rows = "".join(_row_html(row, table, places) for row in table.rows)
    explained = "".join(f'<p class="small">{escape(note)}</p>\n' for note in notes)
    return (
        f'{title}<div class="scroll"><table class="data" id="table-{table.name}"><thead><tr>'
        f"{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n{explained}"
    )


def _text_class(index: int, table: Table) -> str:
    return ' class="text"' if index in table.texts else ""


def _row_html(row: Sequence[Cell], table: Table, places: Mapping[str, int]) -> str:
    first = row[0].label
    label = f' data-label="{places[first]}"' if first is not None and first in places else ""
    cells = "".join(_cell_html(cell, index, table) for index, cell in enumerate(row))
    return f"<tr{label}>{cells}</tr>\n"


def _cell_html(cell: Cell, index: int, table: Table) -> str:
    names = [
        *(["text"] if index in table.texts else []),
        *(["label"] if cell.label is not None else []),
        *(["long"] if len(cell.text) > LONG else []),
        *(["best"] if cell.is_best else []),
    ]
    classes = f' class="{" ".join(names)}"' if names else ""
    value = f' data-value="{cell.value!r}"' if cell.value is not None else ""
    title = f' title="{escape(cell.text)}"' if cell.label is not None else ""
    return f"<td{classes}{value}{title}>{escape(cell.text)}</td>"
