"""Shell completion of config names, algorithms, keys and run folders.

These functions run whenever Tab is pressed, so they avoid slow imports.
"""

from __future__ import annotations

import os
from pathlib import Path

from rl_training.boundary.packaged_configs import config_names

CONFIG_ENDINGS = (".yaml", ".yml")
RUN_FILE = "run.json"
STUDY_INDEX = "index.jsonl"
COMMON_KEYS = (
    *("algo=", "env_id=", "seed=", "total_timesteps=", "output_dir=", "device=", "num_envs="),
    *("tags=", "eval_episodes=", "checkpoint_interval=", "log_interval="),
)


def complete_config(incomplete: str) -> list[str]:
    """Complete packaged configs and YAML files."""
    files = [path for path in _paths(incomplete) if path.endswith((*CONFIG_ENDINGS, "/"))]
    return [*_starting(config_names(), incomplete), *files]


def complete_train(incomplete: str) -> list[str]:
    """Complete configs, keys, and algorithms after ``algo=``."""
    if incomplete.startswith("algo="):
        return [f"algo={name}" for name in complete_algorithm(incomplete.removeprefix("algo="))]
    return [*_starting(COMMON_KEYS, incomplete), *complete_config(incomplete)]


def complete_algorithm(incomplete: str) -> list[str]:
    """Complete the names of algorithms."""
    from rl_training.generated.catalog import ALGORITHMS

    return _starting([str(row["name"]) for row in ALGORITHMS], incomplete)


def complete_config_name(incomplete: str) -> list[str]:
    """Complete packaged configs only."""
    return [name for name in complete_config(incomplete) if not os.path.exists(name)]


def complete_run(incomplete: str) -> list[str]:
    """Complete run folders and their parents; without input, also suggest what is in ``runs``."""
    found = [path for path in _paths(incomplete) if path.endswith("/")]
    if not incomplete:
        found += _paths("runs/")
    return [path.rstrip("/") if (Path(path) / RUN_FILE).is_file() else path for path in found]


def complete_study(incomplete: str) -> list[str]:
    """Complete folders of studies and their parents."""
    found = [path for path in _paths(incomplete) if path.endswith("/")]
    return [path.rstrip("/") if (Path(path) / STUDY_INDEX).is_file() else path for path in found]


def complete_study_run(incomplete: str) -> list[str]:
    """Complete configs, study files, folders of studies and keys."""
    keys = [key for key in COMMON_KEYS if key not in ("seed=", "output_dir=")]
    return [*_starting(keys, incomplete), *complete_config(incomplete)]


def _starting(words: list[str] | tuple[str, ...], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _paths(incomplete: str) -> list[str]:
    """Return files and folders with this prefix; folders end in a slash."""
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:  # the folder does not exist or cannot be read
        return []
    return [
        os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        for entry in entries
        if entry.name.startswith(name) and not entry.name.startswith(".")
    ]
