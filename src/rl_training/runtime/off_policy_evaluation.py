"""Fitted Q evaluation (arXiv 1903.08738): estimate a policy's value from recorded data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.fqe import FittedQ, FQEConfig
from rl_training.data.recorded import RecordedData
from rl_training.errors import ConfigError
from rl_training.runtime.engine import BLOCK, Engine
from rl_training.runtime.engine_choice import choose_engine
from rl_training.runtime.evaluation import Validation
from rl_training.runtime.seeding import Stream, derive_seed

DEFAULT_GAMMA = 0.99
"""Discount factor for algorithms without one, such as behavior cloning."""
DEFAULT_UPDATES = 20_000
HELD_OUT = 0.05
"""Fraction of the rows to hold out, in whole episodes."""
ROWS_AT_ONCE = 4096
"""Observations whose values are computed together."""


@dataclass(frozen=True)
class DataReturns:
    """Discounted returns of recorded episodes; a time limit is not bootstrapped."""

    episodes: npt.NDArray[np.float64]
    mean: float
    deviation: float
    """Mean and standard deviation of the returns from every row to the end of its episode."""


def discounted_returns(dataset: RecordedData, gamma: float) -> DataReturns:
    """Compute the discounted returns of recorded data."""
    bounds = dataset.episode_bounds()
    onward = dataset.returns_to_go(gamma)
    mean, deviation = float(onward.mean()), float(onward.std())
    flat = deviation <= 1e-6 * max(1.0, abs(mean))  # all returns are equal
    return DataReturns(onward[bounds[:-1]], mean, 1.0 if flat else deviation)


def fitted_q_evaluation(
    policy: Algorithm,
    dataset: RecordedData,
    *,
    config: FQEConfig,
    updates: int = DEFAULT_UPDATES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Estimate the value of ``policy`` at the first observations of recorded episodes.

    ``dataset`` has raw observations and untransformed rewards. It is modified in place: rows are
    normalized, and some are held out.
    """
    if updates < 1:
        raise ConfigError(f"fqe_updates = {updates}: should be at least 1.")
    if config.n_step > 1:  # later recorded actions are not from the policy
        raise ConfigError(
            f"n_step = {config.n_step}: fitted Q evaluation supports one-step targets only."
        )
    device = policy.obs_shift.device
    data = discounted_returns(dataset, config.gamma)
    shift, scale = (x.cpu().double().numpy() for x in policy.vector_statistics)
    dataset.normalize_observations(shift, 1.0 / scale, policy.observation_clip)
    dataset.to(device)
    if masks := policy.spec.mask_fields:
        dataset.supply(masks)
    starts = torch.from_numpy(dataset.episode_bounds()[:-1]).to(device)
    first_rows = dataset.subset(starts)
    held_out = dataset.hold_out(HELD_OUT, derive_seed(seed, Stream.VALIDATION))

    generator = torch.Generator().manual_seed(derive_seed(seed, Stream.NETWORKS))
    fitted = FittedQ(policy, config, generator).to(device)
    fitted.set_value_scale(data.mean, data.deviation)
    mode = choose_engine("auto", device.type, updates)
    sampling = derive_seed(seed, Stream.SAMPLING)
    engine = Engine(fitted, dataset, seed=sampling, device=device, mode=mode)
    for done in range(0, updates, BLOCK):
        engine.run(min(BLOCK, updates - done))
        if progress is not None:
            progress(engine.updates, updates)
    engine.check_finite()

    values = _policy_values(fitted, first_rows).cpu().double()  # [N, episodes]
    each = values.mean(-2)
    loss = Validation(held_out, seed=sampling).evaluate(fitted)["eval_loss"]
    of_critics = values.mean(-1)
    return {
        "fqe_value": float(each.mean()),
        "fqe_value_std": float(each.std(correction=0)),
        "fqe_critic_spread": float(of_critics.max() - of_critics.min()),
        "fqe_loss": loss / config.num_critics,
        "fqe_return_mean_data": float(data.episodes.mean()),
        "fqe_episodes": len(data.episodes),
        "fqe_updates": updates,
    }


def _policy_values(fitted: FittedQ, dataset: RecordedData) -> Tensor:
    """Return Q_i(s, π(s)) of every critic at all observations of a dataset, ``[N, rows]``."""
    rows = torch.arange(len(dataset), device=dataset.device)
    parts = torch.split(rows, min(ROWS_AT_ONCE, dataset.most_updates(1)))
    return torch.cat([fitted.policy_values(dataset.batch(part)) for part in parts], dim=-1)
