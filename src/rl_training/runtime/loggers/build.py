"""Build the loggers that a config selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl_training.runtime.loggers.background import BackgroundLogger
from rl_training.runtime.loggers.base import Logger
from rl_training.runtime.loggers.config import (
    VARIABLES,
    LoggingConfig,
    Service,
    destination,
    may_send,
)
from rl_training.runtime.loggers.csv_table import CSVLogger, Rows


def build_loggers(
    config: LoggingConfig, read_rows: Rows, on_warning: Callable[[str], None]
) -> list[Logger]:
    """Return the loggers; packages of services are imported when the run starts."""
    loggers: list[Logger] = []
    if config.tensorboard:
        from rl_training.runtime.loggers.tensorboard import TensorBoardLogger

        loggers.append(TensorBoardLogger())
    if config.csv:
        loggers.append(CSVLogger(read_rows))
    if config.wandb is not None and _is_named("wandb", config, on_warning):
        from rl_training.runtime.loggers.wandb_run import WandbLogger

        loggers.append(BackgroundLogger(WandbLogger(config.wandb)))
    if config.mlflow is not None and _is_named("mlflow", config, on_warning):
        from rl_training.runtime.loggers.mlflow_run import MLflowLogger

        loggers.append(BackgroundLogger(MLflowLogger(config.mlflow)))
    return loggers


def _is_named(service: Service, config: LoggingConfig, on_warning: Callable[[str], None]) -> bool:
    """Return whether the user specified the destination of a service; warn if not."""
    place = destination(config, service)
    if may_send(service, place):
        return True
    name, what, key = {
        "mlflow": ("MLflow", "the MLflow server", "tracking_uri"),
        "wandb": ("W&B", "the W&B entity", "entity"),
    }[service]
    on_warning(
        f"the run folder names {what} {place}, to which nothing is sent unless you specify it: "
        f"pass logging.{service}.{key}={place}, or set {VARIABLES[service]}. Training continues "
        f"without {name}."
    )
    return False


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a config with nested keys joined by dots, and values that every logger accepts."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{name}.")
        elif value is not None:
            flat[name] = value if isinstance(value, bool | int | float | str) else str(value)
    return flat
