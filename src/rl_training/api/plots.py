"""Pictures of datasets and of runs."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.api.arguments import as_output, as_path
from rl_training.boundary.writing import write_output
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.experiment.run_directory import is_run, read_config_file
from rl_training.runtime.logging import read_metrics
from rl_training.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".pdf", ".svg", ".jpg")
"""Of the files that a picture can be written to."""

LINE = 110
"""Characters of a legend that stand beside each other."""

LINES: tuple[Any, ...] = ("-", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = (".", "x", "^", "s")
DASHES: tuple[Any, ...] = ("--", (0, (8, 4)), (0, (2, 2)), (0, (8, 2, 2, 2)))
"""The looks of curves and of flat lines: after ten, when colors repeat, comes the next."""


def _figure(width: float, height: float) -> Figure:
    """An empty picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("A picture needs matplotlib: pip install 'rl-training[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _write(figure: Figure, file: Path) -> None:
    data = io.BytesIO()
    figure.savefig(data, dpi=110, format=file.suffix[1:].lower())
    write_output(file, data.getvalue())


def _plain(text: str) -> str:
    """Text that a picture shows as it is: dollar signs do not begin a formula."""
    return printable(text, keep="").replace("$", r"\$")


def evaluations(run: str | Path) -> tuple[list[int], list[float]]:
    """A run's evaluations: environment steps and returns.

    Of a run from offline to online, those since it is online; of an offline run its updates.
    """
    run = Path(run)
    if not is_run(run):
        raise ConfigError(f"{str(run)!r} is not a run.")
    rows = [row for row in read_metrics(run) if "eval_return_mean" in row]
    config = read_config_file(run)
    if config.mode == "offline_to_online":  # a fine-tuning's metrics begin with its source's
        since = {row["step"]: row for row in rows if row["step"] >= config.online_from}
        rows = [row for row in since.values() if "env_steps" in row]
    if not rows:
        raise ConfigError(f"{run} was never evaluated in an environment: nothing to draw.")
    steps = [int(row.get("env_steps", row["step"])) for row in rows]
    return steps, [float(row["eval_return_mean"]) for row in rows]


def plot_runs(runs: Sequence[str | Path] | str | Path, file: str | Path) -> None:
    """Mean evaluation returns over environment steps; an offline run is one dashed line.

    Offline runs alone are drawn over their updates.
    """
    listed = [runs] if isinstance(runs, str | Path) else runs
    file = as_output("out", file, ENDINGS)
    places = list(dict.fromkeys(Path(os.path.abspath(as_path("run", run))) for run in listed))
    if not places:
        raise ConfigError("There is no run to draw: give at least one.")
    found = [evaluations(place) for place in places]
    configs = [read_config_file(place) for place in places]
    over_updates = all(config.mode == "offline" for config in configs)
    labels = [_plain(name) for name in unique_names(places)]
    flat = [config.mode == "offline" and not over_updates for config in configs]
    for index in (index for index, is_flat in enumerate(flat) if is_flat):
        labels[index] += f", after {found[index][0][-1]:,} updates"
    columns = max(1, min(3, LINE // (max(map(len, labels)) + 8)))
    figure = _figure(8, 5 + 0.2 * math.ceil(len(labels) / columns))
    axes = figure.subplots()
    for index, (steps, returns) in enumerate(found):
        turn = index // 10 % len(LINES)
        look: dict[str, Any] = {"color": f"C{index % 10}", "label": labels[index]}
        if flat[index]:
            axes.axhline(returns[-1], linestyle=DASHES[turn], **look)
        else:
            axes.plot(steps, returns, linestyle=LINES[turn], marker=MARKERS[turn], **look)
    axes.set(
        title=_plain(_title([str(config.env_id) for config in configs])),
        xlabel="updates" if over_updates else "environment steps",
        ylabel="mean return of an evaluation",
    )
    axes.grid(alpha=0.3)
    # Below the picture, where it covers no curve however many there are.
    figure.legend(loc="outside lower center", fontsize="small", ncols=columns, frameon=False)
    _write(figure, file)


def _title(env_ids: Sequence[str]) -> str:
    """The environment, or that returns of several stand beside each other."""
    names = list(dict.fromkeys(env_ids))
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"different environments: {', '.join(names[:3])}{more}"


def unique_names(places: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of the folders above as tell equal ones apart."""

    def tail(place: Path, length: int) -> tuple[str, ...]:
        return place.parts[-length:]

    names = []
    for place in places:
        length = 1
        while sum(tail(other, length) == tail(place, length) for other in places) > 1:
            length += 1
        names.append(str(Path(*tail(place, length))))
    return names


def plot_dataset(dataset: TransitionDataset, file: str | Path, title: str) -> None:
    """Histograms of returns, lengths, rewards and actions."""
    file = as_output("plot", file, ENDINGS)
    figure = _figure(10, 6.5)
    statistics = dataset.statistics()
    actions = dataset.column("actions")
    returns, lengths, rewards, action_axes = figure.subplots(2, 2).flat
    _histogram(returns, statistics.returns, 40)
    returns.set(xlabel="return", ylabel="episodes")
    _histogram(lengths, statistics.lengths, 40)
    lengths.set(xlabel="length", ylabel="episodes")
    _histogram(rewards, dataset.column("rewards"), 60)
    rewards.set(xlabel="reward", ylabel="transitions", yscale="log")
    for index in range(min(actions.shape[1], 8)):
        look = {"histtype": "step", "label": f"action {index}"}
        _histogram(action_axes, actions[:, index], 60, **look)
    action_axes.set(xlabel="action, in its own units", ylabel="transitions")
    if actions.shape[1] > 1:
        action_axes.legend(fontsize="small", ncols=2)
    name = Path(title).name if Path(title).exists() else title
    counts = f"{len(dataset):,} transitions, {len(statistics.returns):,} episodes"
    figure.suptitle(f"{_plain(name)}: {counts}")
    _write(figure, file)


def _histogram(axes: Axes, values: Any, bins: int, **look: Any) -> None:
    """Counts with whole numbers at their axis; where values are whole, so are theirs."""
    from matplotlib.ticker import MaxNLocator

    array = np.asarray(values, dtype=np.float64)
    edges: Any = bins
    if np.isfinite(array).all() and (array == np.round(array)).all():
        low, high = array.min(), array.max()
        width = math.ceil((high - low + 1) / bins)
        edges = np.arange(low - 0.5, high + width, width)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.hist(array, bins=edges, **look)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
