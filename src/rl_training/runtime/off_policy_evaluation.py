"""Fitted Q evaluation (arXiv 1903.08738): estimate a frozen policy's value from recorded data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.fqe import FittedQ, FQEConfig
from rl_training.data import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.runtime.engine import BLOCK, Engine
from rl_training.runtime.engine_choice import choose_engine
from rl_training.runtime.evaluation import Validation
from rl_training.runtime.seeding import Stream, derive_seed

DEFAULT_GAMMA = 0.99
"""The discount for a policy whose algorithm has none, as behavior cloning."""
DEFAULT_UPDATES = 20_000
HELD_OUT = 0.05
"""Share of the rows, in whole episodes, that no update sees."""


@dataclass(frozen=True)
class DataReturns:
    """Discounted returns of recorded episodes: as far as they go, nothing after a time limit."""

    of_episodes: npt.NDArray[np.float64]
    mean: float
    deviation: float
    """Moments of the returns from every row on."""


def discounted_returns(dataset: TransitionDataset, gamma: float) -> DataReturns:
    """The returns of the data as it was recorded."""
    bounds = dataset.episode_bounds()
    onward = dataset.returns_to_go(gamma)
    mean, deviation = float(onward.mean()), float(onward.std())
    flat = deviation <= 1e-6 * max(1.0, abs(mean))  # all alike: there is no unit to be had
    return DataReturns(onward[bounds[:-1]], mean, 1.0 if flat else deviation)


def fitted_q_evaluation(
    policy: Algorithm,
    dataset: TransitionDataset,
    *,
    config: FQEConfig,
    updates: int = DEFAULT_UPDATES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """The value of ``policy`` at the first observations of the dataset's episodes.

    ``dataset`` is as it was recorded: raw observations, untransformed rewards. It is used up: its
    rows are normalized in place, and some are held out.
    """
    if updates < 1:
        raise ConfigError(f"fqe_updates = {updates}: at least 1 is needed.")
    if config.n_step > 1:  # several recorded steps are those of whoever recorded them
        raise ConfigError(f"n_step = {config.n_step}: fitted Q evaluation takes single steps.")
    device = policy.obs_shift.device
    data = discounted_returns(dataset, config.gamma)
    shift, scale = (x.cpu().double().numpy() for x in (policy.obs_shift, policy.obs_scale))
    dataset.normalize_observations(shift, 1.0 / scale, policy.normalization.clip)
    dataset.rows = dataset.rows.to(device)
    starts = torch.from_numpy(dataset.episode_bounds()[:-1]).to(device)
    first_obs = dataset.batch(starts).obs
    held_out = dataset.hold_out(HELD_OUT, derive_seed(seed, Stream.VALIDATION))

    generator = torch.Generator().manual_seed(derive_seed(seed, Stream.NETWORKS))
    fitted = FittedQ(policy, config, generator).to(device)
    fitted.set_units(data.mean, data.deviation)
    mode = choose_engine("auto", device.type, updates)
    sampling = derive_seed(seed, Stream.SAMPLING)
    engine = Engine(fitted, dataset, seed=sampling, device=device, mode=mode)
    for done in range(0, updates, BLOCK):
        engine.run(min(BLOCK, updates - done))
        if progress is not None:
            progress(engine.updates, updates)
    engine.check_finite()

    values = fitted.policy_values(first_obs).cpu().double()  # [N, episodes]
    each = values.mean(-2)
    loss = Validation(held_out, seed=sampling).evaluate(fitted)["eval_loss"]
    of_critics = values.mean(-1)
    return {
        "fqe_value": float(each.mean()),
        "fqe_value_std": float(each.std(correction=0)),
        "fqe_critic_spread": float(of_critics.max() - of_critics.min()),
        "fqe_loss": loss / config.num_critics,
        "fqe_return_mean_data": float(data.of_episodes.mean()),
        "fqe_episodes": len(data.of_episodes),
        "fqe_updates": updates,
    }
