"""The numbers of a report: what is compared, with which tests, and the notes for readers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.curves import Curve, band
from rl_training.errors import ConfigError
from rl_training.scores import Reference
from rl_training.statistics import (
    aggregate,
    holm,
    interval,
    mean_interval,
    permutation_test,
    probability_of_improvement,
    welch_test,
)
from rl_training.study.index import StudyIndex
from rl_training.study.report import analysis as analysis_module
from rl_training.study.report.analysis import Analysis, ReportOptions, analyze
from rl_training.study.report.results import CurveCache, read_results
from tests.study.report.building import Scores, study_of
from tests.study.simulated import ended, group, header, started, write_index

SAC, TD3 = [-200.0, -180.0, -150.0, -170.0, -160.0], [-300.0, -320.0, -280.0, -290.0, -310.0]
PENDULUM, CARTPOLE = "Pendulum-v1", "CartPole-v1"


def analyzed(folder: Path, scores: Scores, **options: Any) -> Analysis:
    study = study_of(folder / "study", scores, **options)
    return analyze(read_results([study]))


def two_labels(folder: Path) -> Analysis:
    return analyzed(folder, {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}})


# --- Scores and intervals -------------------------------------------------------


def test_scores_and_intervals_are_those_of_the_statistics_module(tmp_path: Path) -> None:
    found = two_labels(tmp_path)
    scores = found.by_task["sac", PENDULUM]
    assert scores.scores.tolist() == SAC
    assert scores.mean == mean_interval(SAC)
    assert scores.iqm == interval([SAC], "iqm")
    reference = Reference(-1240.9, -151.9)
    normalized = [reference.normalized(score) for score in SAC]
    iqm = found.aggregates["sac"]["iqm"]
    assert iqm.value == pytest.approx(aggregate([normalized]), abs=1e-12)
    assert found.is_normalized


def test_comparisons_use_both_tests_and_count_all_of_them(tmp_path: Path) -> None:
    scores = {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}, "tqc": {PENDULUM: SAC[::-1]}}
    found = analyzed(tmp_path, scores)
    assert [(pair.first, pair.second) for pair in found.comparisons] == [
        ("sac", "td3"),
        ("sac", "tqc"),
        ("td3", "tqc"),
    ]
    assert found.tested == 3
    first = found.comparisons[0]
    assert first.difference == welch_test([SAC], [TD3])
    assert first.permutation_p == permutation_test([SAC], [TD3])
    assert first.improvement == probability_of_improvement([SAC], [TD3])
    corrected = holm([pair.difference.p_value for pair in found.comparisons])
    assert [pair.corrected_p for pair in found.comparisons] == corrected
    assert first.corrected_p > first.difference.p_value


def test_the_best_mean_and_those_not_different_from_it_are_marked(tmp_path: Path) -> None:
    close = [score - 5 for score in SAC]
    scores = {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}, "tqc": {PENDULUM: close}}
    found = analyzed(tmp_path, scores)
    best = {label for (label, _), scores in found.by_task.items() if scores.is_best}
    assert best == {"sac", "tqc"}


def test_single_runs_are_not_tested(tmp_path: Path) -> None:
    found = analyzed(tmp_path, {"sac": {PENDULUM: [-200.0]}, "td3": {PENDULUM: [-100.0]}})
    assert found.tested == 0
    assert math.isnan(found.comparisons[0].corrected_p)
    assert [label for (label, _), s in found.by_task.items() if s.is_best] == ["td3"]
    assert any("single run" in note for note in found.notes)


def test_few_runs_are_a_warning(tmp_path: Path) -> None:
    found = analyzed(tmp_path, {"sac": {PENDULUM: SAC[:3]}})
    mean = found.by_task["sac", PENDULUM].mean
    assert mean is not None
    assert (mean.method, mean.reliable) == ("student", True)
    assert not found.aggregates["sac"]["iqm"].reliable
    assert any("are unreliable" in note for note in found.notes)
    assert not any("unreliable" in note for note in two_labels(tmp_path / "more").notes)


def test_many_labels_are_compared_with_the_baseline(tmp_path: Path) -> None:
    scores = {f"label{n}": {PENDULUM: [x + n for x in SAC]} for n in range(10)}
    study = study_of(tmp_path / "study", scores)
    found = analyze(read_results([study]))
    assert {pair.second for pair in found.comparisons} == {"label0"}
    assert len(found.comparisons) == 9
    found = analyze(read_results([study]), ReportOptions(baseline="label3"))
    assert {pair.second for pair in found.comparisons} == {"label3"}
    with pytest.raises(ConfigError, match="baseline = 'sac': should be a label: 'label0'"):
        analyze(read_results([study]), ReportOptions(baseline="sac"))


def test_charts_show_the_baseline_and_the_best_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_module, "MAX_DRAWN", 3)
    scores = {f"label{n}": {PENDULUM: [x + 10 * n for x in SAC]} for n in range(6)}
    found = analyzed(tmp_path, scores)
    assert found.drawn == ["label0", "label4", "label5"]
    assert any("show 3 of 6 labels" in note for note in found.notes)


# --- Tasks ----------------------------------------------------------------------


def test_scores_of_several_tasks_are_normalized(tmp_path: Path) -> None:
    tasks = {PENDULUM: SAC, CARTPOLE: [500.0, 400.0, 450.0, 480.0, 470.0]}
    found = analyzed(tmp_path, {"sac": tasks, "td3": {PENDULUM: TD3, CARTPOLE: [100.0] * 5}})
    assert found.tasks == [PENDULUM, CARTPOLE]
    assert found.aggregates["sac"].keys() == {"iqm", "median", "mean", "optimality_gap"}
    assert {pair.task for pair in found.comparisons} == {None, PENDULUM, CARTPOLE}
    assert found.tested == 3
    results = found.results
    scores = [results.compared_scores("sac", task) for task in found.tasks]
    assert found.aggregates["sac"]["mean"].value == pytest.approx(np.mean(scores), abs=1e-12)


def test_tasks_without_references_are_not_aggregated(tmp_path: Path) -> None:
    scores = {"sac": {PENDULUM: SAC, "Mine-v0": SAC}, "td3": {PENDULUM: TD3, "Mine-v0": TD3}}
    study = study_of(tmp_path / "study", scores)
    found = analyze(read_results([study]))
    assert found.tasks == [PENDULUM]
    assert any("no reference returns for Mine-v0" in note for note in found.notes)
    references = {"Mine-v0": Reference(-1000.0, 0.0)}
    found = analyze(read_results([study], references=references))
    assert found.tasks == [PENDULUM, "Mine-v0"]


def test_one_task_without_references_has_raw_aggregates(tmp_path: Path) -> None:
    found = analyzed(tmp_path, {"sac": {"Mine-v0": SAC}})
    assert not found.is_normalized
    assert found.aggregates["sac"].keys() == {"iqm", "mean"}
    assert found.aggregates["sac"]["iqm"].value == pytest.approx(aggregate([SAC]))
    assert found.threshold is None


def test_tasks_that_a_label_lacks_are_left_out_of_aggregates(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path, {"sac": {PENDULUM: SAC, CARTPOLE: [500.0] * 5}, "td3": {PENDULUM: TD3}}
    )
    assert found.tasks == [PENDULUM]
    assert any("finished run on CartPole-v1" in note for note in found.notes)


# --- Runs that have not ended -----------------------------------------------------


def test_runs_that_have_not_ended_are_not_compared(tmp_path: Path) -> None:
    runs = [*SAC, "failed", "running", "planned"]
    found = analyzed(tmp_path, {"sac": {PENDULUM: runs}, "td3": {PENDULUM: TD3}})
    scores = found.by_task["sac", PENDULUM]
    assert scores.scores.tolist() == SAC
    assert scores.runs == 8
    assert any("Failed runs have no score (1 of sac)" in note for note in found.notes)
    assert any("2 runs of 13 have not ended" in note for note in found.notes)
    drawn = found.results.drawn("sac", PENDULUM)
    assert [result.run.seed for result in drawn] == [0, 1, 2, 3, 4]


def test_runs_in_progress_are_drawn_while_none_has_ended(tmp_path: Path) -> None:
    found = analyzed(tmp_path, {"sac": {PENDULUM: ["running", "running", "failed", "planned"]}})
    assert [result.run.seed for result in found.results.drawn("sac", PENDULUM)] == [0, 1]
    assert found.by_task["sac", PENDULUM].mean is None
    assert not found.comparisons
    assert any("no scores to compare" in note for note in found.notes)


def test_a_run_without_metrics_uses_the_results_of_the_index(tmp_path: Path) -> None:
    records = [header(), group(seeds=[0, 1])]
    key = "sac/Pendulum-v1/seed{}"
    records += [started(key.format(0)), ended(key.format(0), results={"last_return": -3.0})]
    records += [started(key.format(1)), ended(key.format(1))]
    found = analyze(read_results([write_index(tmp_path / "study", records)]))
    assert found.by_task["sac", PENDULUM].scores.tolist() == [-3.0]
    assert any("1 run ended without a finite value" in note for note in found.notes)


# --- Kinds of scores --------------------------------------------------------------


def test_kinds_of_scores(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    run = StudyIndex.open(study).runs["label0/task0/seed0"].path
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[1]["eval_return_mean"] = 7.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def first(kind: Any) -> float:
        return float(read_results([study], score=kind).scores("sac", PENDULUM)[0])

    assert (first("last"), first("best")) == (-200.0, 7.0)
    values = [line["eval_return_mean"] for line in lines]
    assert first("area") == pytest.approx((values[0] / 2 + sum(values[1:3]) + values[3] / 2) / 3)
    with pytest.raises(ConfigError, match="score = 'worst': should be one of last, best, area"):
        read_results([study], score="worst")  # type: ignore[arg-type]


def test_losses_are_better_if_lower(tmp_path: Path) -> None:
    low, high = [0.1, 0.2, 0.15, 0.12, 0.11], [0.9, 0.8, 0.7, 0.95, 0.85]
    scores = {"bc": {"data": high}, "iql": {"data": low}}
    found = analyzed(tmp_path, scores, metric="eval_loss")
    assert found.results.metric == "eval_loss"
    assert found.results.lower_is_better
    assert found.by_task["iql", "data"].is_best
    (pair,) = found.comparisons
    assert pair.improvement.value == 0.0
    assert found.profiles["iql"].value[len(found.profiles["iql"].x) // 2] == 1.0


def test_an_unknown_metric_is_one_sentence(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    with pytest.raises(ConfigError, match="has the metric 'q/men'"):
        read_results([study], metric="q/men")


# --- Curves -----------------------------------------------------------------------


def test_tasks_of_different_lengths_are_aggregated_over_their_budget(tmp_path: Path) -> None:
    tasks = {PENDULUM: SAC, CARTPOLE: [500.0] * 5}
    found = analyzed(tmp_path, {"sac": tasks}, steps={PENDULUM: 1000, CARTPOLE: 50_000})
    assert found.curves.keys() == {"share", "time"}
    assert found.curves["share"]["sac"].x[-1] == 1.0


def test_ended_runs_keep_their_score_over_time(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    run = StudyIndex.open(study).runs["label0/task0/seed0"].path
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["time/seconds"] = 100.0 * (number + 1)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = analyze(read_results([study]))
    curve = found.curves["time"]["sac"]
    assert curve.x[-1] == 400.0
    assert curve.value[-1] == pytest.approx(found.aggregates["sac"]["iqm"].value)


def test_speed_is_the_median_over_runs(tmp_path: Path) -> None:
    scores = {PENDULUM: [-1000.0, -200.0, -100.0, -100.0]}
    study = study_of(tmp_path / "study", {"sac": scores})
    options = ReportOptions(threshold=Reference(-1240.9, -151.9).normalized(-200.0))
    (speed,) = analyze(read_results([study]), options).speeds
    assert (speed.reached, speed.runs) == (3, 4)
    assert speed.steps == 875.0  # of 750, 750, 1000 and infinity
    assert speed.seconds == 12.5
    study = study_of(tmp_path / "other", {"sac": {PENDULUM: [-1000.0, -1000.0, -100.0]}})
    (speed,) = analyze(read_results([study]), options).speeds
    assert (speed.reached, speed.steps) == (1, None)


def test_the_mean_of_a_chart_is_that_of_plot(tmp_path: Path) -> None:
    from rl_training.study.report.charts import task_charts

    found = two_labels(tmp_path)
    (chart,) = task_charts(found, 100_000)
    series = chart["views"]["steps"]["series"][0]
    curves = [run.curve for run in found.results.drawn("sac", PENDULUM)]
    expected = band([Curve(curve.steps, curve.values) for curve in curves if curve])
    assert series["x"] == expected.x.tolist()
    np.testing.assert_allclose(series["y"], expected.value, rtol=1e-4)
    np.testing.assert_allclose(series["lo"], expected.low, rtol=1e-4)


# --- Several studies --------------------------------------------------------------


def test_labels_of_two_studies_are_distinguished(tmp_path: Path) -> None:
    first = study_of(tmp_path / "first", {"sac": {PENDULUM: SAC}, "td3": {PENDULUM: TD3}})
    second = study_of(tmp_path / "second", {"sac": {PENDULUM: TD3}, "tqc": {PENDULUM: SAC}})
    found = analyze(read_results([first, second]))
    assert found.results.labels == ["sac (first)", "td3", "sac (second)", "tqc"]
    assert found.tested == 6


def test_studies_of_one_name_are_distinguished_by_their_folder(tmp_path: Path) -> None:
    scores = {"sac": {PENDULUM: SAC}}
    folders = [study_of(tmp_path / name, scores, name="same") for name in ("a", "b")]
    assert read_results(folders).labels == ["sac (a)", "sac (b)"]
    nested = [study_of(tmp_path / name / "study", scores, name="same") for name in ("c", "d")]
    assert len(set(read_results(nested).labels)) == 2


def test_a_study_is_not_compared_with_itself(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    with pytest.raises(ConfigError, match="compared with itself"):
        read_results([study, tmp_path / "." / "study"])


def test_different_environments_of_one_task_are_noted(tmp_path: Path) -> None:
    scores = {"sac": {PENDULUM: SAC}}
    changed = {"sac": {"env_kwargs": {"g": 5.0}}}
    folders = [study_of(tmp_path / "a", scores), study_of(tmp_path / "b", scores, configs=changed)]
    (note,) = [n for n in analyze(read_results(folders)).notes if "another environment" in n]
    assert note.startswith("The task Pendulum-v1 has another environment in b than in a")


# --- Reading ----------------------------------------------------------------------


def test_ended_runs_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_training.study.report import results

    study = study_of(tmp_path / "study", {"sac": {PENDULUM: [*SAC, "running"]}})
    cache, read = CurveCache(), []
    original = results.read_curve

    def counting(path: Path, *rest: Any) -> Any:
        read.append(path.name)
        return original(path, *rest)

    monkeypatch.setattr(results, "read_curve", counting)
    read_results([study], cache=cache)
    assert len(read) == 6
    read_results([study], cache=cache)
    assert read[6:] == ["seed5"]


def test_a_damaged_study_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder with an"):
        read_results([tmp_path / "missing"])
    study = study_of(tmp_path / "study", {"sac": {PENDULUM: SAC}})
    index = study / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-7])
    found = analyze(read_results([study]))
    assert any("damaged line" in note for note in found.notes)
    index.write_bytes(b"nonsense\n")
    with pytest.raises(ConfigError, match="has no runs, but 1 damaged line"):
        read_results([study])
    run = study_of(tmp_path / "other", {"sac": {PENDULUM: SAC}})
    metrics = run / "runs" / "label0" / "task0" / "seed0" / "metrics.jsonl"
    metrics.write_bytes(b"\x00\xff{not json\n" + metrics.read_bytes()[:-5])
    assert len(read_results([run]).scores("sac", PENDULUM)) == 5
    metrics.unlink()
    metrics.symlink_to("/etc/passwd")
    assert len(read_results([run]).scores("sac", PENDULUM)) == 4
