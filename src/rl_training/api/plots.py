"""Pictures of datasets and of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.experiment.manager import is_run, read_config_file
from rl_training.runtime.logging import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _figure(file: Path, width: float, height: float) -> Figure:
    """An empty picture that can be written to ``file``."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("A picture needs matplotlib: pip install 'rl-training[plot]'") from None
    if not file.parent.is_dir():
        raise ConfigError(f"{str(file)!r}: there is no folder {str(file.parent)!r}.")
    return Figure(figsize=(width, height), layout="constrained")


def _write(figure: Figure, file: Path) -> None:
    try:
        figure.savefig(file, dpi=110)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be written: {error}") from None


def evaluations(run: Path) -> tuple[list[int], list[float]]:
    """A run's evaluations: environment steps and returns.

    Of a run from offline to online, those since it is online; of an offline run its updates.
    """
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


def plot_runs(runs: Sequence[Path], file: Path) -> None:
    """Mean evaluation returns over environment steps; an offline run is one dashed line."""
    found = [(run, *evaluations(run)) for run in runs]
    figure = _figure(file, 8, 5)
    axes = figure.subplots()
    for index, (run, steps, returns) in enumerate(found):
        color = f"C{index}"
        if read_config_file(run).mode == "offline":
            label = f"{run.name}, after {steps[-1]:,} updates"
            axes.axhline(returns[-1], color=color, linestyle="--", label=label)
        else:
            axes.plot(steps, returns, color=color, marker=".", label=run.name)
    axes.set(xlabel="environment steps", ylabel="mean return of an evaluation")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _write(figure, file)


def plot_dataset(dataset: TransitionDataset, file: Path, title: str) -> None:
    """Histograms of returns, lengths, rewards and actions."""
    figure = _figure(file, 10, 6.5)
    statistics = dataset.statistics()
    actions = dataset.column("actions")
    returns, lengths, rewards, action_axes = figure.subplots(2, 2).flat
    returns.hist(statistics.returns, bins=40)
    returns.set(xlabel="return", ylabel="episodes")
    lengths.hist(statistics.lengths, bins=40)
    lengths.set(xlabel="length", ylabel="episodes")
    rewards.hist(dataset.column("rewards"), bins=60)
    rewards.set(xlabel="reward", ylabel="transitions", yscale="log")
    for index in range(min(actions.shape[1], 8)):
        action_axes.hist(actions[:, index], bins=60, histtype="step", label=f"action {index}")
    action_axes.set(xlabel="action, in its own units", ylabel="transitions")
    if actions.shape[1] > 1:
        action_axes.legend(fontsize="small", ncols=2)
    name = Path(title).name if Path(title).exists() else title
    figure.suptitle(f"{name}: {len(dataset):,} transitions, {len(statistics.returns):,} episodes")
    _write(figure, file)
