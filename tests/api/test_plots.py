"""Pictures: every run can be told apart, and an axis says what it counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.api import plots
from rl_training.api.datasets import inspect_data
from rl_training.api.plots import plot_runs, unique_names
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config
from rl_training.experiment.run_directory import write_config
from rl_training.runtime.recording import record_random

pytest.importorskip("matplotlib")

MakeRun = Callable[..., Path]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that would have been written."""
    figures: list[Any] = []
    monkeypatch.setattr(plots, "_write", lambda figure, file: figures.append(figure))
    return figures


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run's folder with two evaluations."""

    def make(name: str, algo: str = "sac", env_id: str = "Pendulum-v1") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        data: dict[str, Any] = {"algo": algo, "env_id": env_id, "total_timesteps": 20}
        if algo == "iql":
            data["algo_kwargs"] = {"dataset_kind": "npz", "dataset_path": "a.npz"}
        write_config(folder, make_config(data).resolved())
        (folder / "run.json").write_text("{}")
        lines = [{"step": step, "eval_return_mean": float(step)} for step in (10, 20)]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        return folder

    return make


def names(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_offline_runs_alone_are_curves_over_updates(make_run: MakeRun, drawn: list[Any]) -> None:
    offline = [make_run(f"iql{index}", "iql") for index in range(2)]
    plot_runs(offline, "a.png")
    axes = drawn[0].axes[0]
    assert axes.get_xlabel() == "updates"
    assert [list(line.get_xdata()) for line in axes.lines] == [[10, 20]] * 2
    plot_runs([make_run("sac"), *offline], "a.png")
    axes = drawn[1].axes[0]
    assert axes.get_xlabel() == "environment steps"
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "--"]
    assert names(drawn[1]) == ["sac", "iql0, after 20 updates", "iql1, after 20 updates"]


def test_no_two_of_many_runs_look_the_same(make_run: MakeRun, drawn: list[Any]) -> None:
    plot_runs([make_run(f"sac{index}") for index in range(23)], "a.png")
    lines = drawn[0].axes[0].lines
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == 23


def test_the_legend_covers_no_curve(make_run: MakeRun, drawn: list[Any]) -> None:
    plot_runs([make_run(f"sac{index}") for index in range(10)], "a.png")
    figure = drawn[0]
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 <= figure.axes[0].get_window_extent().y0
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


def test_runs_of_one_name_are_told_apart(make_run: MakeRun, drawn: list[Any]) -> None:
    runs = [make_run(name) for name in ("slow/x/sac", "fast/x/sac", "fast/x/td3")]
    plot_runs([*runs, runs[0]], "a.png")  # a run that is given twice is one curve
    assert names(drawn[0]) == ["slow/x/sac", "fast/x/sac", "td3"]
    assert unique_names([Path("/a/b"), Path("/b")]) == ["a/b", "/b"]


def test_the_title_says_which_environments(make_run: MakeRun, drawn: list[Any]) -> None:
    one, two = make_run("a"), make_run("b", env_id="Hopper-v5")
    plot_runs([one], "a.png")
    plot_runs([one, two], "a.png")
    titles = [figure.axes[0].get_title() for figure in drawn]
    assert titles == ["Pendulum-v1", "different environments: Pendulum-v1, Hopper-v5"]


def test_paths_may_be_text(make_run: MakeRun, tmp_path: Path) -> None:
    run, picture = str(make_run("a")), str(tmp_path / "a.png")
    plot_runs([run], picture)
    plot_runs(run, picture)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="There is no run to draw"):
        plot_runs([], picture)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_what_is_whole_has_whole_ticks(env_id: str, tmp_path: Path, drawn: list[Any]) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, **record_random(env_id, {}, 400, 0))  # type: ignore[arg-type]
    inspect_data(str(file), plot=tmp_path / "a.png")
    returns, lengths, _rewards, actions = drawn[0].axes
    whole = [returns.get_yticks(), lengths.get_yticks(), lengths.get_xticks(), actions.get_yticks()]
    if env_id == "CartPole-v1":
        whole.append(actions.get_xticks())
    for ticks in whole:
        assert len(ticks)
        assert np.array_equal(ticks, np.round(ticks))
