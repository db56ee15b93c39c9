"""Action masks: random and greedy choices among the legal actions.

Masks are tensors ``[B, actions]`` with 1 for each legal action and 0 for the others; at least one
action of each row is legal. They come from the environment (`act`) or from a batch
(`Batch.legal_actions`, `Batch.next_legal_actions`). Without masks, they are None.
"""

from __future__ import annotations

from torch import Tensor

from rl_training.models.categorical import legal_only as legal_only
from rl_training.types import Batch


def uniform_actions(uniform: Tensor, num_actions: int, legal: Tensor | None) -> Tensor:
    """Map uniform numbers below 1 to random actions; each legal action is equally likely."""
    if legal is None:
        return (uniform * num_actions).floor()
    count = legal.cumsum(-1)  # [B, actions], legal actions up to each one
    rank = (uniform * count[..., -1]).floor()
    return (count <= rank.unsqueeze(-1)).sum(-1).to(uniform.dtype)


def legal_actions(batch: Batch) -> Tensor | None:
    """Return the legal actions at ``obs``, or None for a batch without masks."""
    return batch.extra.get("legal_actions")


def next_legal_actions(batch: Batch) -> Tensor | None:
    """Return the legal actions at ``next_obs``, or None for a batch without masks."""
    return batch.extra.get("next_legal_actions")
