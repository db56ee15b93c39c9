"""All hostile cases, grouped by kind of input."""

from __future__ import annotations

from tests.hostile.case import Case
from tests.hostile.cases import (
    archives,
    checkpoints,
    commands,
    configs,
    environment,
    folders,
    hdf5,
    minari,
    named_files,
    records,
    tensors,
)

MODULES = (
    *(archives, tensors, hdf5, minari, named_files),
    *(configs, records, checkpoints, folders),
    *(environment, commands),
)
CASES: list[Case] = [case for module in MODULES for case in module.cases()]
