"""Plots of runs and datasets."""

from rl_training.api.dataset_plots import plot_dataset
from rl_training.api.run_curves import evaluations
from rl_training.api.run_plots import plot_runs

__all__ = ["evaluations", "plot_dataset", "plot_runs"]
