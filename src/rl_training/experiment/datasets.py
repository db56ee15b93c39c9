"""A config's dataset, loaded for its environment and made known to the learner."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.data import EpochSampler, TransitionDataset, load_transition_dataset
from rl_training.envs import find_spec
from rl_training.experiment.config import TrainConfig, split
from rl_training.runtime.recording import record_random
from rl_training.types import EnvSpec, Sampler

STD_FLOOR = 1e-3
"""Added to the deviation of an observation's entry, which may be constant."""


def load_dataset(
    config: TrainConfig, spec: EnvSpec, device: torch.device | str = "cpu"
) -> TransitionDataset:
    """The dataset that `algo_kwargs` names, checked and with its rewards transformed."""
    parts = split(config)

    def collect(size: int, seed: int) -> dict[str, Any]:
        return record_random(config.env_id, parts.env.make_kwargs, size, seed)

    return load_transition_dataset(
        parts.data,
        spec=spec,
        time_limit=find_spec(config.env_id).max_episode_steps,
        collect_random=collect,
        device=device,
    )


def prepare_sampler(
    config: TrainConfig, dataset: TransitionDataset, algorithm: Algorithm
) -> Sampler:
    """Normalise as the config says, in the data and in the learner alike; choose the order.

    The learner keeps mean and deviation among its tensors: they are in every checkpoint, and `act`
    applies them, so that evaluation and prediction take raw observations.
    """
    data = split(config).data
    if data.normalize_states:
        statistics = dataset.statistics()
        std = statistics.obs_std + STD_FLOOR
        dataset.normalise_observations(statistics.obs_mean, std)
        algorithm.set_normalisation(torch.from_numpy(statistics.obs_mean), torch.from_numpy(std))
    return EpochSampler(dataset) if data.sampling == "epochs" else dataset
