"""Read and write the tensors of a checkpoint as safetensors files."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from torch import Tensor

from rl_training.boundary.reading import read_bytes
from rl_training.errors import CheckpointError
from rl_training.text import first_line, shown


def read_tensors(path: Path, *, limit: int) -> dict[str, Tensor]:
    """Return the tensors of a file of at most ``limit`` bytes; all must be finite."""
    data = read_bytes(path, limit=limit, error=CheckpointError)
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # an invalid header, an unsupported type, or not enough memory
        raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from None
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{path}: tensor {shown(name)} has values that are not finite")
    return tensors


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors and text as the contents of a safetensors file."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(stored, metadata)
