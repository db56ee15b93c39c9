"""The key `logging` of a config, and the destinations that may be used."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated, Literal, get_args

from pydantic import Field

from rl_training.config_model import ConfigModel
from rl_training.errors import ConfigError

Name = Annotated[str, Field(min_length=1, max_length=512)]


class WandbConfig(ConfigModel):
    """Keys of `logging.wandb`. The server and the API key come from W&B's own settings."""

    project: Name = "rl_training"
    """Project to which the run belongs."""
    entity: Name | None = None
    """Team or user that owns the project; null for the default of the account."""
    name: Name | None = None
    """Name of the run; null for the name of the run folder."""
    group: Name | None = None
    """Group of the run, for example the seeds of one experiment."""
    mode: Literal["online", "offline"] | None = None
    """offline stores the run locally until `wandb sync`; null for WANDB_MODE, or online."""


class MLflowConfig(ConfigModel):
    """Keys of `logging.mlflow`."""

    tracking_uri: Name | None = None
    """Address of the tracking server; null for MLFLOW_TRACKING_URI, or a local store."""
    experiment: Name = "rl_training"
    """Experiment to which the run belongs; created if it does not exist."""
    name: Name | None = None
    """Name of the run; null for the name of the run folder."""


class LoggingConfig(ConfigModel):
    """Keys of `logging`: destinations of metrics in addition to metrics.jsonl."""

    tensorboard: bool = True
    """Write TensorBoard files with metrics, hyperparameters and histograms of returns."""
    csv: bool = False
    """Write the metrics as a table, metrics.csv."""
    wandb: WandbConfig | None = None
    """Send the metrics to Weights & Biases."""
    mlflow: MLflowConfig | None = None
    """Send the metrics to MLflow."""
    videos: int = Field(default=0, ge=0, le=100)
    """Episodes of each evaluation to record for TensorBoard, as animations."""


def check_logging(config: LoggingConfig) -> None:
    """Reject settings that need a package that is not installed."""
    for key, wanted, package in (
        ("wandb", config.wandb is not None, "wandb"),
        ("mlflow", config.mlflow is not None, "mlflow"),
        ("videos", config.videos > 0, "imageio"),
    ):
        extra = "video" if key == "videos" else key
        if wanted and find_spec(package) is None:
            raise ConfigError(
                f"logging.{key} requires {package}. Install it with: "
                f"pip install 'rl-training[{extra}]'"
            )
    if config.videos and not config.tensorboard:
        raise ConfigError(
            f"logging.videos = {config.videos}: videos are written for TensorBoard, which is off. "
            "Set logging.tensorboard to true, or remove logging.videos."
        )


Service = Literal["mlflow", "wandb"]

VARIABLES: dict[Service, str] = {"mlflow": "MLFLOW_TRACKING_URI", "wandb": "WANDB_ENTITY"}
"""Environment variables that specify where a service stores runs."""

_named: set[tuple[Service, str]] = set()


def destination(config: LoggingConfig, service: Service) -> str | None:
    """Return the MLflow server or the W&B entity of a config; None for the user's default."""
    if service == "mlflow":
        return None if config.mlflow is None else config.mlflow.tracking_uri
    if config.wandb is None or config.wandb.mode == "offline":
        return None
    return config.wandb.entity


def name_destinations(config: LoggingConfig) -> None:
    """Record that the user specified the destinations of a config in this process.

    Nothing is sent to a destination that only a run folder mentions, since the folder may come
    from someone else.
    """
    for service in get_args(Service):
        place = destination(config, service)
        if place is not None:
            _named.add((service, place))


def may_send(service: Service, place: str | None) -> bool:
    """Return whether the user specified this destination, here or in the environment."""
    return (
        place is None or (service, place) in _named or place == os.environ.get(VARIABLES[service])
    )
