"""Facts about the machine on which a run is trained."""

from __future__ import annotations

import hashlib
import platform
from typing import Any

import torch

from rl_training.boundary import json_codec
from rl_training.experiment.build import versions
from rl_training.experiment.machine import available_memory, cpu_name, usable_cores


def describe_host(*, gpu: bool = False) -> dict[str, Any]:
    """Return the name, the hardware and the versions of this machine; ``gpu`` if one is used."""
    facts: dict[str, Any] = {
        "hostname": platform.node(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory": available_memory(torch.device("cpu")),
        "versions": versions(),
    }
    if gpu:
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def host_id(facts: dict[str, Any]) -> str:
    """Return a short id of a machine, the same for equal facts."""
    digest = hashlib.sha256(json_codec.dumps(facts)).hexdigest()[:8]
    return f"{facts.get('hostname') or 'host'}-{digest}"
