"""Float64 RLPD (arXiv 2302.02948): REDQ's update with LayerNorm before the critics' ReLU.

A critic's network has "scales" and "shifts" of its hidden layers; the actor's does not. The caller
mixes the sources of a batch. The loss sums over critics (the authors average: Adam almost cancels
the factor).
"""

from . import redq
from .nn import Batch
from .redq import Noise, RedqState, actor_loss, critic_loss, critic_target, initial_state

__all__ = [
    "Hyper",
    "actor_loss",
    "critic_loss",
    "critic_target",
    "full_update",
    "initial_state",
]


class Hyper(redq.Hyper):
    """REDQ's hyperparameters; ``backup_entropy`` False drops alpha log pi from the target."""

    backup_entropy: bool


def full_update(
    state: RedqState, batch: Batch, noise: Noise, hyper: Hyper
) -> tuple[RedqState, dict[str, float]]:
    """One critic update and, on the last one of a block, actor and temperature."""
    for critic in state["critics"]:
        if len(critic["scales"]) != len(critic["weights"]) - 1:
            raise ValueError("every hidden layer of a critic has one LayerNorm")
    target_alpha = None if hyper["backup_entropy"] else 0.0
    return redq.full_update(state, batch, noise, hyper, target_alpha)
