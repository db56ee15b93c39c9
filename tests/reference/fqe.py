"""Float64 fitted Q evaluation (arXiv 1903.08738, algorithm 3) with hand-derived gradients.

The form with target critics that follow by Polyak averaging. A value is shift + scale * network.
"""

from collections.abc import Callable
from typing import TypedDict

import numpy as np

from .nn import Array, Batch, Ensemble, adam_critics, critic_values, polyak_networks


class Hyper(TypedDict):
    """Discount, Polyak rate, Adam's step size, and the units of the values."""

    gamma: float
    tau: float
    critic_lr: float
    shift: float
    scale: float


def full_update(
    state: Ensemble, batch: Batch, policy: Callable[[Array], Array], hyper: Hyper
) -> tuple[Ensemble, dict[str, float]]:
    """One update: every critic toward r + gamma (1 - d) Q'_i(s', pi(s')), then the targets.

    The loss is sum_i mean_b (Q_i - y_i)^2; the networks' gradient is that of the loss / scale^2.
    """
    shift, scale = hyper["shift"], hyper["scale"]
    following = batch["next_observation"]
    next_outputs, _ = critic_values(state["target_critics"], following, policy(following))
    next_q = shift + scale * next_outputs
    target = batch["reward"] + hyper["gamma"] * (1.0 - batch["termination"]) * next_q
    outputs, caches = critic_values(state["critics"], batch["observation"], batch["action"])
    error = shift + scale * outputs - target  # [N, B]
    slopes = 2.0 * error * scale / error.shape[1] / scale**2
    critics, adams = adam_critics(
        state["critics"], state["critic_adams"], caches, slopes[:, :, None], hyper["critic_lr"]
    )
    new_state: Ensemble = {
        "critics": critics,
        "critic_adams": adams,
        "target_critics": polyak_networks(state["target_critics"], critics, hyper["tau"]),
    }
    metrics = {
        "critic_loss": float((error * error).mean(axis=1).sum()),
        "q_mean": float(np.mean(shift + scale * outputs)),
    }
    return new_state, metrics
