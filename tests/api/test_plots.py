"""Plots: groups of runs, means and bands, axes, and legends."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.api import figures as plot_figures
from rl_training.api import run_plots
from rl_training.api.dataset_plots import plot_dataset
from rl_training.api.datasets import inspect_data
from rl_training.api.plots import plot_runs
from rl_training.api.run_curves import unique_names
from rl_training.curves import Curve, smoothed
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config
from rl_training.experiment.run_directory import write_config
from rl_training.runtime.recording import record_random

pytest.importorskip("matplotlib")

MakeRun = Callable[..., Path]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the figures instead of writing them."""
    figures: list[Any] = []
    for module in (run_plots, plot_figures):
        monkeypatch.setattr(module, "figure_bytes", lambda figure, suffix: figures.append(figure))
        monkeypatch.setattr(module, "write_output", lambda file, data: None)
    return figures


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Create a run folder with an evaluation at each of ``points``."""

    def make(
        name: str,
        algo: str = "sac",
        env_id: str = "Pendulum-v1",
        seed: int = 0,
        points: dict[int, float] | None = None,
        rows: list[dict[str, float]] | None = None,
        **kwargs: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if algo == "iql":
            kwargs |= {"dataset_kind": "npz", "dataset_path": "a.npz"}
        data = {"algo": algo, "env_id": env_id, "seed": seed, "total_timesteps": 20}
        write_config(folder, make_config({**data, "algo_kwargs": kwargs}).resolved())
        (folder / "run.json").write_text("{}")
        points = points or {10: 10.0, 20: 20.0}
        lines = rows or [{"step": x, "eval_return_mean": y} for x, y in points.items()]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        return folder

    return make


def names(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def note(figure: Any) -> str:
    return " ".join(figure.legends[0].get_title().get_text().split())


def curves(figure: Any) -> list[list[tuple[float, float]]]:
    return [list(zip(*line.get_data(), strict=True)) for line in figure.axes[0].lines]


def shaded(figure: Any) -> list[set[tuple[float, float]]]:
    """Return the corners of each band."""
    paths = [collection.get_paths()[0] for collection in figure.axes[0].collections]
    return [{(round(float(x), 3), round(float(y), 3)) for x, y in path.vertices} for path in paths]


# --- Groups ---------------------------------------------------------------------


def test_runs_that_differ_in_their_seed_are_one_line(make_run: MakeRun, drawn: list[Any]) -> None:
    runs = [
        make_run(f"sac{seed}", seed=seed, points={10: seed, 20: 3.0 * seed}) for seed in range(3)
    ]
    runs += [make_run("td3", "td3")]
    groups = plot_runs(runs, "a.png")
    assert names(drawn[0]) == list(groups) == ["SAC (3 seeds)", "TD3 (1 seed)"]
    assert groups["SAC (3 seeds)"] == runs[:3]
    assert curves(drawn[0]) == [[(10, 1), (20, 3)], [(10, 10), (20, 20)]]


def test_labels_show_the_settings_that_differ(make_run: MakeRun, drawn: list[Any]) -> None:
    runs = [make_run(f"{gamma}-{seed}", seed=seed, gamma=gamma)
            for gamma in (0.9, 0.95) for seed in (0, 1)]  # fmt: skip
    plot_runs(runs, "a.png")
    assert names(drawn[0]) == ["SAC, gamma=0.9 (2 seeds)", "SAC, gamma=0.95 (2 seeds)"]
    plot_runs(runs, "a.png", by="algo")
    assert names(drawn[1]) == ["SAC (4 runs)"]  # each seed occurs twice
    plot_runs(runs, "a.png", by="run")
    assert names(drawn[2]) == ["0.9-0", "0.9-1", "0.95-0", "0.95-1"]


def test_band_of_three_runs_is_the_student_interval(make_run: MakeRun, drawn: list[Any]) -> None:
    values = [1.0, 2.0, 6.0]
    plot_runs([make_run(f"{v}", seed=int(v), points={10: v}) for v in values], "a.png")
    half = 4.302653 * statistics.stdev(values) / 3**0.5
    assert shaded(drawn[0]) == [{(10, round(3 - half, 3)), (10, round(3 + half, 3))}]
    assert "95% confidence intervals (Student's t)" in note(drawn[0])


def test_band_of_two_runs_is_their_range(make_run: MakeRun, drawn: list[Any]) -> None:
    plot_runs([make_run(f"{v}", seed=v, points={10: float(v)}) for v in (1, 5)], "a.png")
    assert shaded(drawn[0]) == [{(10, 1), (10, 5)}]
    assert note(drawn[0]) == "Lines are means; bands are minimum to maximum."


def test_mean_spans_the_range_that_all_runs_cover(make_run: MakeRun, drawn: list[Any]) -> None:
    one = make_run("a", seed=0, points={10: 0.0, 20: 10.0, 40: 10.0})
    two = make_run("b", seed=1, points={15: 5.0, 30: 20.0})
    plot_runs([one, two], "a.png")
    assert curves(drawn[0]) == [[(15, 5), (20, 10), (30, 15)]]
    assert "interpolated over the range that all runs of a group cover" in note(drawn[0])
    late = make_run("c", seed=2, points={50: 0.0})
    with pytest.raises(ConfigError, match=r"no common range: one starts at 50.*--by run"):
        plot_runs([one, late], "a.png")


def test_smoothing_is_a_bias_corrected_average() -> None:
    curve = Curve(np.arange(3.0), np.array([4.0, 4.0, 8.0]))
    assert smoothed(curve, 0.5).y.tolist() == pytest.approx([4, 4, (0.5 * 3 + 0.5 * 8) / 0.875])
    assert smoothed(curve, 0.0) is curve


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"smooth": 1.0}, "smooth = 1.0: should be at least 0 and below 1"),
        ({"by": "seed"}, "by = 'seed': should be one of config, algo, run"),
        ({"x": "epochs"}, "x = 'epochs': should be one of steps, updates, time"),
        ({"metric": "loss"}, "has no metric 'loss'. Its metrics: eval_return_mean"),
        ({"x": "updates"}, "did not record its number of updates"),
    ],
)
def test_errors_list_the_allowed_values(
    make_run: MakeRun, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plot_runs([make_run("a")], "a.png", **arguments)


# --- Axes -----------------------------------------------------------------------


def test_only_offline_runs_are_curves_over_updates(make_run: MakeRun, drawn: list[Any]) -> None:
    offline = [make_run(f"iql{seed}", "iql", seed=seed) for seed in range(2)]
    plot_runs(offline, "a.png")
    axes = drawn[0].axes[0]
    assert axes.get_xlabel() == "Gradient updates"
    assert curves(drawn[0]) == [[(10, 10), (20, 20)]]
    plot_runs([make_run("sac"), *offline], "a.png")
    axes = drawn[1].axes[0]
    assert axes.get_xlabel() == "Environment steps"
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]
    assert names(drawn[1]) == ["SAC (1 seed)", "IQL (2 seeds, offline, 20 updates)"]
    with pytest.raises(ConfigError, match="Offline runs have no environment steps"):
        plot_runs(offline, "a.png", x="steps")


def test_updates_and_time_are_read_from_the_metrics(make_run: MakeRun, drawn: list[Any]) -> None:
    rows = [
        {"step": 10, "updates": 0, "loss/critic": 5.0, "time/seconds": 60.0},
        {"step": 20, "updates": 10, "loss/critic": 4.0, "time/seconds": 180.0},
        {"step": 15, "eval_return_mean": 1.0, "time/seconds": 120.0},
        {"step": 25, "eval_return_mean": 2.0, "time/seconds": 200.0},
    ]
    run = make_run("a", rows=rows)
    plot_runs([run], "a.png", x="updates")
    assert curves(drawn[0]) == [[(5, 1)]]  # step 25 has no data
    plot_runs([run], "a.png", x="time", metric="loss/critic", title="", ylabel="Critic loss")
    axes = drawn[1].axes[0]
    assert curves(drawn[1]) == [[(1, 5), (3, 4)]]
    assert axes.get_xlabel() == "Training time (minutes)"
    assert (axes.get_title(), axes.get_ylabel()) == ("", "Critic loss")


def test_no_two_of_many_runs_look_the_same(make_run: MakeRun, drawn: list[Any]) -> None:
    plot_runs([make_run(f"sac{index}") for index in range(40)], "a.png", by="run")
    lines = drawn[0].axes[0].lines
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == 40


def test_legend_does_not_cover_curves(make_run: MakeRun, drawn: list[Any]) -> None:
    runs = [
        make_run(f"sac{index}", seed=index, gamma=0.9 + index // 2 / 100) for index in range(10)
    ]
    plot_runs(runs, "a.png", smooth=0.5)
    figure = drawn[0]
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 <= figure.axes[0].get_window_extent().y0
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


def test_runs_with_the_same_name_get_different_labels(make_run: MakeRun, drawn: list[Any]) -> None:
    runs = [make_run(name) for name in ("slow/x/sac", "fast/x/sac", "fast/x/td3")]
    plot_runs([*runs, runs[0]], "a.png", by="run")  # a run given twice is one curve
    assert names(drawn[0]) == ["slow/x/sac", "fast/x/sac", "td3"]
    assert unique_names([Path("/a/b"), Path("/b")]) == ["a/b", "/b"]


def test_title_contains_the_environments(make_run: MakeRun, drawn: list[Any]) -> None:
    one, two = make_run("a"), make_run("b", env_id="Hopper-v5")
    plot_runs([one], "a.png")
    plot_runs([one, two], "a.png")
    titles = [figure.axes[0].get_title() for figure in drawn]
    assert titles == ["Pendulum-v1", "Different environments: Pendulum-v1, Hopper-v5"]


# --- Files ----------------------------------------------------------------------


def test_paths_may_be_text(make_run: MakeRun, tmp_path: Path) -> None:
    run, picture = str(make_run("a")), str(tmp_path / "a.png")
    plot_runs([run], picture)
    plot_runs(run, picture)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="There is no run to plot"):
        plot_runs([], picture)


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_equal_plots_are_equal_files(make_run: MakeRun, tmp_path: Path, ending: str) -> None:
    run, files = make_run("a"), [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        plot_runs(run, file)
    assert files[0].read_bytes() == files[1].read_bytes()


# --- Datasets -------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_integer_quantities_have_integer_ticks(
    env_id: str, tmp_path: Path, drawn: list[Any]
) -> None:
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


def test_outliers_do_not_stretch_an_axis_and_are_counted(drawn: list[Any]) -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=1000)
    rewards[:2] = 1e6, -1e6
    ends = np.arange(1000) % 10 == 9
    columns = {
        "observations": rng.normal(size=(1000, 3)),
        "next_observations": rng.normal(size=(1000, 3)),
        "actions": rng.uniform(-1, 1, size=(1000, 6)),
        "rewards": rewards,
        "terminations": np.zeros(1000, dtype=bool),
        "truncations": ends,
    }
    plot_dataset(TransitionDataset.from_dict(columns), "a.png", "mine")
    reward_axes, action_axes = drawn[0].axes[2:]
    low, high = reward_axes.get_xlim()
    assert -10 < low < high < 10
    assert [text.get_text() for text in reward_axes.texts] == [
        "1% outside, from −1,000,000 to 1,000,000"
    ]
    legend = reward_axes.get_legend().get_texts()[0].get_text()
    assert legend == f"median {np.median(rewards):.3g}".replace("-", "−")
    assert list(action_axes.get_yticks()) == list(range(6))
