"""Tensors of a checkpoint: safetensors files, whose header is checked by the library itself."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from torch import Tensor

from rl_training.boundary.reading import read_bytes
from rl_training.errors import CheckpointError
from rl_training.text import first_line, shown


def read_tensors(path: Path, *, limit: int) -> dict[str, Tensor]:
    """The tensors of a file of at most ``limit`` bytes, all of them finite."""
    data = read_bytes(path, limit=limit, error=CheckpointError)
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # of the header, of a type that torch lacks, of memory
        raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from None
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{path}: tensor {shown(name)} holds values that are not finite")
    return tensors


def tensor_bytes(tensors: dict[str, Tensor]) -> bytes:
    """The contents of a safetensors file."""
    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )
