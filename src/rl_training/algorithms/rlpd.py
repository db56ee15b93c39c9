"""RL with Prior Data (arXiv 2302.02948): REDQ with normalized critics on batches of two sources.

The update is REDQ's. Which rows of a batch come from which source is the sampler's business
(data/samplers.py).
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
    """RLPD's hyper-parameters (docs/algorithms/rlpd.md)."""

    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "critic": {"layer_norm": "layer_norm"}
    }

    target_entropy: float | Literal["auto"] = "auto"
    """Entropy that a learned α aims for; `auto` is −|A|/2."""
    backup_entropy: bool = True
    """Keep −α log π in the critics' target."""
    layer_norm: bool = True
    """Normalize the critics' hidden layers."""


rlpd_loss = redq_loss
"""All of RLPD's losses: REDQ's, on a mixed batch."""


class RLPDAlgorithm(REDQAlgorithm):
    """RL with Prior Data."""

    name: ClassVar[str] = "rlpd"
    title: ClassVar[str] = "RL with Prior Data"
    paper: ClassVar[str] = "arXiv 2302.02948"
    mode: ClassVar[Mode] = "offline_to_online"
    summary: ClassVar[str] = "REDQ with LayerNorm critics on batches of recorded and new data."
    config_class: ClassVar[type[AlgorithmConfig]] = RLPDConfig
    config: RLPDConfig

    def __init__(self, spec: EnvSpec, config: RLPDConfig, generator: torch.Generator) -> None:
        super().__init__(spec, config, generator)
        if config.target_entropy == "auto":
            self.target_entropy = -0.5 * spec.action_dim

    @property
    def backup_alpha(self) -> Tensor:
        """α inside the target; 0 without `backup_entropy`."""
        return entropy_weight(self.alpha, self.config.backup_entropy)
