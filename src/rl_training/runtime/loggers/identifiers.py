"""Identifiers of a run on tracking servers, kept in its folder so that a resume continues it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from rl_training.boundary.reading import read_json
from rl_training.boundary.writing import write_atomically
from rl_training.errors import ConfigError

IDENTIFIERS_FILE = "loggers.json"


def read_identifier(run_dir: Path, service: str) -> str | None:
    """Return the identifier of a run at a service; None if it has none or the file is invalid."""
    if not os.path.lexists(run_dir / IDENTIFIERS_FILE):
        return None
    try:
        known = read_json(run_dir / IDENTIFIERS_FILE)
    except ConfigError:
        return None
    found = known.get(service) if isinstance(known, dict) else None
    return found if isinstance(found, str) and re.fullmatch("[A-Za-z0-9_-]{1,64}", found) else None


def write_identifier(run_dir: Path, service: str, identifier: str) -> None:
    """Record the identifier of a run at a service."""
    services = {"wandb", "mlflow"} - {service}
    known = {name: read_identifier(run_dir, name) for name in sorted(services)}
    entries = {name: value for name, value in known.items() if value} | {service: identifier}
    write_atomically(run_dir / IDENTIFIERS_FILE, (json.dumps(entries) + "\n").encode())
