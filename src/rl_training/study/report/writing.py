"""Write the report of one or more studies: a page, and tables beside it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.boundary.reading import MAX_TEXT, read_text
from rl_training.boundary.writing import write_output
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.scores import Reference, read_references
from rl_training.study.records import STUDY_FILE
from rl_training.study.report.analysis import Analysis, ReportOptions, analyze
from rl_training.study.report.page import PageFacts, report_page
from rl_training.study.report.records import (
    CSV_FILES,
    aggregate_records,
    comparison_records,
    score_records,
    to_csv,
)
from rl_training.study.report.results import CurveCache, ScoreKind, StudyResults, read_results
from rl_training.study.report.tables import result_tables, to_latex, to_markdown
from rl_training.text import counted, reason, shown

if TYPE_CHECKING:
    from rl_training.study.study import Study

REPORT_FILE = "report.html"
COMPARISON_FILE = "comparison.html"

ReferencesLike = Mapping[str, Reference] | str | os.PathLike[str]


@dataclass(frozen=True)
class ReportSettings:
    """What a report shows."""

    metric: str | None = None
    """A metric in ``metrics.jsonl``; None is the evaluation return, or else the held-out loss."""
    score: ScoreKind = "last"
    """What counts of each run: its ``"last"`` evaluation, its ``"best"`` one, or the ``"area"``."""
    baseline: str | None = None
    """Label with which the others are compared; None compares all pairs if they are few."""
    references: ReferencesLike | None = None
    """Random and expert returns by task or environment, or a YAML file with them."""
    threshold: float | None = None
    """Score that counts as solved; None is a normalized score of 0.9."""

    def read(self, paths: Sequence[str | Path], cache: CurveCache | None = None) -> StudyResults:
        """Read the results of studies."""
        return read_results(
            paths,
            metric=self.metric,
            score=self.score,
            references=self._references(),
            cache=cache,
        )

    def _references(self) -> Mapping[str, Reference] | None:
        given = self.references
        return read_references(Path(given)) if isinstance(given, str | os.PathLike) else given

    def analyze(self, paths: Sequence[str | Path], cache: CurveCache | None = None) -> Analysis:
        """Read studies and compute the statistics."""
        options = ReportOptions(baseline=self.baseline, threshold=self.threshold)
        return analyze(self.read(paths, cache), options)


@dataclass(frozen=True)
class StudyReport:
    """A report that was written."""

    path: Path
    """The page."""
    tables: Path
    """Folder of the tables."""
    scores: list[dict[str, Any]]
    """Scores of each label on each task, with intervals."""
    aggregates: list[dict[str, Any]]
    """Statistics over all tasks, with intervals."""
    comparisons: list[dict[str, Any]]
    """Differences between labels, with intervals and p-values."""
    notes: list[str]
    """What to know before trusting the numbers."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "path": str(self.path), "tables": str(self.tables)}


def compare_studies(
    studies: Sequence[str | os.PathLike[str] | Study],
    out: str | os.PathLike[str] = COMPARISON_FILE,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    score: ScoreKind = "last",
    references: ReferencesLike | None = None,
    threshold: float | None = None,
) -> StudyReport:
    """Compare two or more studies in one report.

    A label that occurs in several studies is followed by the name of its study.

    Args:
        studies: Studies or their folders.
        out: The page to write.
        baseline: Label with which the others are compared, as it is in the report.
        metric: A metric in ``metrics.jsonl``, as in `Study.report`.
        score: What counts of each run, as in `Study.report`.
        references: Random and expert returns, as in `Study.report`.
        threshold: Score that counts as solved, as in `Study.report`.
    """
    from rl_training.api.arguments import as_path

    if isinstance(studies, str | os.PathLike) or len(studies) < 2:
        raise ConfigError(f"studies = {shown(studies)}: should be a list of at least two studies.")
    paths = [
        as_path("study", study, "a folder")
        if isinstance(study, str | os.PathLike)
        else study.index.path
        for study in studies
    ]
    settings = ReportSettings(metric, score, baseline, references, threshold)
    return write_report(paths, as_path("out", out, "an HTML file"), settings)


def write_report(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    settings: ReportSettings | None = None,
    *,
    command: Sequence[str] = (),
) -> StudyReport:
    """Write the report of one or more studies.

    Args:
        paths: Folders of studies.
        out: The page to write, with the suffix .html; by default ``report.html`` in the folder of
            the study, or ``comparison.html`` in the current folder for several studies. The
            tables are written to a folder beside it.
        settings: What the report shows.
        command: The command to show as the one that writes the report.
    """
    settings = settings or ReportSettings()
    file = output_file(paths, out)
    analysis = settings.analyze(paths)
    folder = file.with_name(f"{file.stem}_tables")
    facts = PageFacts(
        title=report_title(analysis.results),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(command) if command else default_command(paths),
        tables=folder.name,
        descriptions=descriptions(analysis.results),
    )
    page = report_page(analysis, facts)
    write_output(file, page)
    _write_tables(folder, analysis)
    return StudyReport(
        path=file,
        tables=folder,
        scores=list(score_records(analysis)),
        aggregates=list(aggregate_records(analysis)),
        comparisons=list(comparison_records(analysis)),
        notes=analysis.notes,
    )


def output_file(paths: Sequence[str | Path], out: str | Path | None) -> Path:
    """Return the page to write; check its suffix before anything is computed."""
    if out is None:
        return Path(paths[0]) / REPORT_FILE if len(paths) == 1 else Path(COMPARISON_FILE)
    file = Path(out)
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"out = {shown(str(file))}: should be the name of an HTML file, such as report.html."
        )
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"out = {shown(str(file))}: the folder {file.parent} does not exist.")
    return file


def _write_tables(folder: Path, analysis: Analysis) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {reason(error)}.") from None
    for name, records in CSV_FILES.items():
        write_output(folder / f"{name}.csv", to_csv(records(analysis)).encode())
    for table in result_tables(analysis):
        for suffix, text in (("md", to_markdown(table)), ("tex", to_latex(table))):
            write_output(folder / f"{table.name}.{suffix}", text.encode())


def report_title(results: StudyResults) -> str:
    """Return the names of the studies."""
    names = [study.name or study.path.name for study in results.studies]
    more = f" and {counted(len(names) - 4, 'more study')}" if len(names) > 4 else ""
    return " vs. ".join(names[:4]) + more


def default_command(paths: Sequence[str | Path]) -> str:
    """Return the command that writes a report."""
    words = ["rl-training", "study", "report" if len(paths) == 1 else "compare"]
    return shlex.join([*words, *map(str, paths)])


def descriptions(results: StudyResults) -> dict[str, str]:
    """Return the study files, by the name of the study."""
    found = {}
    for study in results.studies:
        try:
            found[study.name] = read_text(study.path / STUDY_FILE, limit=MAX_TEXT)[:20_000]
        except RLTrainingError:  # a study that was started from another place has no file
            continue
    return found
