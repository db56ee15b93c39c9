"""Programs of `torch.export` as .pt2 archives.

`torch.export.load` can run code from a hostile archive, so only archives that this process wrote
are loaded.
"""

from __future__ import annotations

import io

import torch
from torch.export import ExportedProgram


def archive_bytes(program: ExportedProgram) -> bytes:
    """Return a program as an archive, without stack traces, which contain paths."""
    for node in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            node.meta.pop(key, None)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def load_own_archive(data: bytes) -> ExportedProgram:
    """Load the result of `archive_bytes`."""
    return torch.export.load(io.BytesIO(data))
