"""Modules that the user imports with ``--import``."""

from __future__ import annotations

import sys
from importlib import import_module

from rl_training.errors import ConfigError
from rl_training.text import shorten, shown


def import_user_module(module: str) -> None:
    """Import a module, which may be in the current folder."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"--import {shown(module)}: should be the name of a module, such as my_envs or "
            "my_package.envs."
        )
    if "" not in sys.path:
        sys.path.append("")  # after the installed packages
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(f"--import {shorten(module)}: {shorten(str(error), 200)}.") from error
    except (Exception, SystemExit) as error:  # the module may raise anything
        raise ConfigError(
            f"--import {shorten(module)}: the import failed with {type(error).__name__}: "
            f"{shorten(str(error), 200)}. Fix the module, or leave out --import."
        ) from error
