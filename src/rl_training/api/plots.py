"""Pictures of datasets."""

from __future__ import annotations

from pathlib import Path

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.errors import ConfigError


def plot_dataset(dataset: TransitionDataset, file: Path, title: str) -> None:
    """Histograms of returns, lengths, rewards and actions."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("A picture needs matplotlib: pip install 'rl-training[plot]'") from None
    if not file.parent.is_dir():
        raise ConfigError(f"{str(file)!r}: there is no folder {str(file.parent)!r}.")
    statistics = dataset.statistics()
    actions = dataset.column("actions")
    figure = Figure(figsize=(10, 6.5), layout="constrained")
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
    try:
        figure.savefig(file, dpi=110)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be written: {error}") from None
