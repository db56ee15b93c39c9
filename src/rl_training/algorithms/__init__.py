"""Learners, one file per algorithm, and the registry of algorithms.

Learners are imported on first use, so listing the algorithms does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.generated import catalog
from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.generated.algorithms import *
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            **{name: [*exports, catalog.SHORT[name]] for name, exports in catalog.EXPORTS.items()},
            "base": [
                *("ActorCritic", "Algorithm", "PolicyLearner", "Stage", "StagedAlgorithm", "Terms"),
                *("bootstrap_discount", "draw_noise", "polyak_update", "td_target", "td_terms"),
            ],
            "optimizers": ["FlatAdam"],
            "registry": ["REGISTRY", "AlgorithmEntry", "get_algorithm", "register_algorithm"],
        },
    )
