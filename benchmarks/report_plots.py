"""The plots of docs/results.md and the README, drawn from the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.records import interval, load, normalized
from rl_training.api.figures import (
    COLORS,
    GRAY,
    format_counts,
    format_values,
    new_figure,
    plot_style,
    write_figure,
)
from rl_training.curves import Curve, band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE, YELLOW = COLORS[:5]


def draw_speed_cpu(file: Path) -> None:
    """Draw how many times faster than other libraries training is on the CPU."""
    with plot_style():
        figure = new_figure(7.2, 3.9)
        axes = figure.subplots()
        _speed_bars(axes, SPEEDS)
        axes.set_title("Training speed relative to other libraries, 2 CPU cores")
        write_figure(figure, file)


SPEEDS = (
    ("sac_cpu", "sbx", "SAC", "SBX (JAX)"),
    ("sac_cpu", "sb3", "SAC", "Stable-Baselines3"),
    ("online_cpu", "td3", "TD3", "Stable-Baselines3"),
    ("online_cpu", "ddpg", "DDPG", "Stable-Baselines3"),
    ("online_cpu", "tqc", "TQC", "Stable-Baselines3"),
    ("dqn_cpu", "dqn", "DQN", "Stable-Baselines3"),
    ("offline_cpu", "cql", "CQL", "d3rlpy"),
    ("offline_cpu", "awac", "AWAC", "d3rlpy"),
    ("offline_cpu", "td3_bc", "TD3+BC", "d3rlpy"),
    ("offline_cpu", "iql", "IQL", "d3rlpy"),
    ("offline_cpu", "bc", "BC", "d3rlpy"),
)
"""Record, key, algorithm and the library that is compared with."""


def _speed_bars(
    axes: Axes, cases: Sequence[tuple[str, str, str, str]], *, legend: bool = True
) -> None:
    """Bars of the median ratio, with lines from the minimum to the maximum."""
    colors = {"SBX (JAX)": PURPLE, "Stable-Baselines3": BLUE, "d3rlpy": ORANGE}
    seen = set()
    for row, (record, key, _, peer) in enumerate(cases):
        entry = load(record)["summary"][key]
        ratio = (
            entry["ours_ratio"] if record == "sac_cpu" else entry["over_better_peer"]["compiled"]
        )
        median = ratio["median"]
        reach = [[median - ratio["min"]], [ratio["max"] - median]]
        name = None if peer in seen else f"relative to {peer}"
        seen.add(peer)
        axes.barh(row, median, height=0.66, color=colors[peer], label=name)
        style: dict[str, Any] = {"ecolor": "black", "elinewidth": 1, "capsize": 2}
        axes.errorbar(median, row, xerr=reach, fmt="none", **style)
        axes.text(ratio["max"] + 0.07, row, f"{median:.1f}×", va="center", fontsize=9)
    short = {"SBX (JAX)": "SBX", "Stable-Baselines3": "SB3"}
    labels = [a if legend else f"{a} vs. {short.get(peer, peer)}" for _, _, a, peer in cases]
    axes.set_yticks(range(len(cases)), labels)
    axes.invert_yaxis()
    axes.axvline(1, color=GRAY, linewidth=1, linestyle="--")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 5.5)
    axes.set_xlabel("Times as fast (median; line: minimum to maximum of 3 rounds)")
    if legend:
        axes.legend(loc="upper right", frameon=False, fontsize=9)


def draw_learning_online(file: Path) -> None:
    """Draw the learning curves of online algorithms."""
    with plot_style():
        figure = new_figure(9.2, 3.9)
        cheetah, pendulum = figure.subplots(1, 2)
        sac = load("sac_halfcheetah_learning")
        _mean(cheetah, [run["curve"] for run in sac["ours"]], BLUE, "SAC")
        for name, color in (("td3", ORANGE), ("tqc", GREEN)):
            curves = [run["curve"] for run in load(f"{name}_halfcheetah_gpu")["seeds"].values()]
            _mean(cheetah, curves, color, name.upper())
        mean, low, high = interval([run["return_mean"] for run in sac["sb3"]])
        reach = [[mean - low], [high - mean]]
        style: dict[str, Any] = {"fmt": "D", "color": "black", "markersize": 4, "capsize": 3}
        cheetah.errorbar(
            102_500, mean, yerr=reach, elinewidth=1, label="SAC, Stable-Baselines3", **style
        )
        cheetah.set_title("HalfCheetah-v5")
        colors = {"sac": BLUE, "td3": ORANGE, "tqc": GREEN, "ddpg": PURPLE, "redq": YELLOW}
        for name, color in colors.items():
            curves = [run["curve"] for run in load(f"{name}_pendulum_learning")["ours"]]
            _mean(pendulum, curves, color, name.upper())
        pendulum.set_title("Pendulum-v1")
        for axes in (cheetah, pendulum):
            _finish(axes)
            axes.legend(loc="lower right", frameon=False)
        _note(figure, "Means over 4 seeds; bands and the bar are 95% confidence intervals.")
        write_figure(figure, file)


def draw_learning_offline(file: Path) -> None:
    """Draw the normalized scores of offline algorithms, a dot for each seed."""
    from benchmarks.report import NAMES, OFFLINE_TASKS, offline_returns

    algorithms = ("edac", "cql", "td3_bc", "awac", "iql", "bc")
    with plot_style():
        figure = new_figure(9.2, 2.9)
        panels = figure.subplots(1, 4, sharey=True)
        for axes, ((task, kind), title) in zip(panels, OFFLINE_TASKS.items(), strict=True):
            for row, algo in enumerate(algorithms):
                returns = offline_returns(algo, task, kind)
                scores = [normalized(value, task) for value in returns]
                mean = float(np.mean(scores))
                color = COLORS[row]
                axes.plot(
                    sorted(scores), [row] * len(scores), "o", color=color, alpha=0.45, markersize=5
                )
                axes.plot([mean, mean], [row - 0.3, row + 0.3], color=color, linewidth=2.4)
            axes.set_title(title.replace(" ", "\n", 1), fontsize=10)
            axes.grid(visible=False, axis="y")
            axes.set_xlim(0, 1.08 * max(float(line.get_xdata()[-1]) for line in axes.lines))
        panels[0].set_yticks(range(len(algorithms)), [NAMES[name] for name in algorithms])
        panels[0].invert_yaxis()
        figure.supxlabel("Normalized score (dot: one seed; line: mean)", fontsize=10)
        write_figure(figure, file)


def draw_offline_to_online(file: Path) -> None:
    """Draw RLPD next to SAC, and the fine-tuning of IQL."""
    with plot_style():
        figure = new_figure(9.2, 3.9)
        prior, finetuning = figure.subplots(1, 2)
        _rlpd_curves(prior)
        prior.legend(loc="upper left", frameon=False)
        prior.set_title("RLPD with 100,000 recorded transitions")
        runs = load("finetune_medium_replay_cpu")["results"].values()
        _mean(finetuning, [run["curve"] for run in runs], GREEN, "IQL, fine-tuned (6 seeds)")
        before = float(np.mean([run["before"] for run in runs]))
        style: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "color": GRAY}
        finetuning.axhline(before, label="IQL, offline", **style)
        finetuning.legend(loc="lower right", frameon=False)
        finetuning.set_title("Fine-tuning IQL (medium-replay)")
        for axes in (prior, finetuning):
            _finish(axes)
        _note(figure, "HalfCheetah-v5. Means over seeds; bands are 95% confidence intervals.")
        write_figure(figure, file)


def _rlpd_curves(axes: Axes) -> None:
    results = load("rlpd_gpu")["results"]
    for name, color, label in (
        ("rlpd", BLUE, "RLPD with recorded data (4 seeds)"),
        ("sac", ORANGE, "SAC from scratch (4 seeds)"),
    ):
        curves = [entry["curve"] for key, entry in results.items() if key.split()[0] == name]
        _mean(axes, curves, color, label)
    level = load("halfcheetah_medium_data")["medium"]["return_mean"]
    style: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "color": GRAY}
    axes.axhline(level, label="policy that recorded the data", **style)
    axes.set_ylim(top=9_000)  # room for the legend


def draw_overview(file: Path) -> None:
    """Draw the README's plot: offline to online, and speed."""
    shown = {("sac_cpu", "sbx"), ("sac_cpu", "sb3"), ("online_cpu", "td3"), ("dqn_cpu", "dqn")}
    shown |= {("offline_cpu", name) for name in ("cql", "td3_bc", "iql", "bc")}
    with plot_style():
        figure = new_figure(9.6, 3.8)
        learning, speed = figure.subplots(1, 2, width_ratios=(1.1, 1))
        _rlpd_curves(learning)
        learning.legend(loc="upper left", frameon=False)
        learning.set_title("Offline to online on HalfCheetah-v5")
        _finish(learning)
        _speed_bars(speed, [case for case in SPEEDS if case[:2] in shown], legend=False)
        speed.set_title("Training speed on 2 CPU cores")
        speed.set_xlabel("Times as fast (line: minimum to maximum)")
        write_figure(figure, file)


def _mean(axes: Axes, curves: Sequence[Sequence[Sequence[float]]], color: str, label: str) -> None:
    """Draw the mean of curves with its band."""
    points = [np.array([point[:2] for point in curve], dtype=np.float64).T for curve in curves]
    found = band([Curve(x, y) for x, y in points])
    axes.plot(found.x, found.value, color=color, label=label)
    axes.fill_between(found.x, found.low, found.high, color=color, alpha=0.16, linewidth=0)


def _finish(axes: Axes) -> None:
    axes.set(xlabel="Environment steps", ylabel="Evaluation return")
    axes.set_xlim(left=0)
    format_counts(axes.xaxis)
    format_values(axes)


def _note(figure: Any, text: str) -> None:
    figure.supxlabel(text, fontsize=9, color=GRAY)


PLOTS: dict[str, Callable[[Path], None]] = {
    "speed_cpu.svg": draw_speed_cpu,
    "learning_online.svg": draw_learning_online,
    "learning_offline.svg": draw_learning_offline,
    "offline_to_online.svg": draw_offline_to_online,
    "overview.png": draw_overview,
}
"""Files in docs/images, and what draws them."""
