"""RL with Prior Data (arXiv 2302.02948): REDQ with LayerNorm critics on mixed batches.

The update is REDQ's. The sampler (data/samplers.py) mixes recorded and new transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rl_training.algorithms.config import AlgorithmConfig, MixingConfig
from rl_training.algorithms.redq import REDQAlgorithm, REDQConfig, redq_loss
from rl_training.algorithms.sac import entropy_weight
from rl_training.types import EnvSpec, Mode


class RLPDConfig(REDQConfig, MixingConfig):
    """Hyperparameters of RLPD (docs/algorithms/rlpd.md)."""

    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"layer_norm": "layer_norm"}
    }

    target_entropy: float | Literal["auto"] = "auto"
    """Target entropy of a learned α; `auto` is −|A|/2 for |A| action dimensions."""
    backup_entropy: bool = True
    """Include the entropy term −α log π in the critics' target."""
    layer_norm: bool = True
    """Apply LayerNorm to the critics' hidden layers, before their activation."""


rlpd_loss = redq_loss
"""RLPD's losses: REDQ's losses on a mixed batch."""


class RLPDAlgorithm(REDQAlgorithm):
    """RL with Prior Data."""

    name: ClassVar[str] = "rlpd"
    title: ClassVar[str] = "RL with Prior Data"
    paper: ClassVar[str] = "arXiv 2302.02948"
    mode: ClassVar[Mode] = "offline_to_online"
    summary: ClassVar[str] = (
        "REDQ with LayerNorm critics on mixed batches of recorded and new data."
    )
    config_class: ClassVar[type[AlgorithmConfig]] = RLPDConfig
    config: RLPDConfig

    def __init__(self, spec: EnvSpec, config: RLPDConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        if config.target_entropy == "auto":
            self.target_entropy = -0.5 * spec.action_dim

    @property
    def backup_alpha(self) -> Tensor:
        """α in the critics' target; 0 without `backup_entropy`."""
        return entropy_weight(self.alpha, self.config.backup_entropy)
