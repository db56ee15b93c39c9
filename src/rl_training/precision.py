"""Floating-point precision by device."""

from __future__ import annotations

import torch

_WITHOUT_FLOAT64 = {"mps"}


def widest_float(device: torch.device | str) -> torch.dtype:
    """Return float64, or float32 on a device that does not support float64."""
    return torch.float32 if torch.device(device).type in _WITHOUT_FLOAT64 else torch.float64
