"""Weights & Biases."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.errors import ConfigError
from rl_training.runtime.loggers.base import LoggedRun, Logger
from rl_training.runtime.loggers.config import WandbConfig
from rl_training.runtime.loggers.identifiers import read_identifier, write_identifier

INIT_SECONDS = 40.0
"""How long W&B may take to start a run; shorter than the wait at the end of training."""


def _ignore(record: logging.LogRecord) -> None:
    """Print no traceback for a line of W&B's debug log that a full disk does not take."""


def _check_login(mode: str | None) -> None:
    """Raise an error if there is no API key, for which W&B would ask in the terminal."""
    import wandb

    settings = wandb.setup().settings
    if (mode or settings.mode) in ("offline", "dryrun", "disabled"):
        return
    before, settings.silent = settings.silent, True  # login prints the name of the account
    try:
        if wandb.login(prompt=False, verify=False):
            return
    finally:
        settings.silent = before
    raise ConfigError(
        "no API key is configured: log in with wandb login, or store the run locally with "
        "logging.wandb.mode=offline"
    )


class WandbLogger(Logger):
    """A W&B run with the metrics of the training run; a resume continues the same W&B run."""

    name = "W&B"

    def __init__(self, config: WandbConfig) -> None:
        self._config = config

    def start(self, run: LoggedRun) -> None:
        """Start the W&B run, or continue the one that the run folder records."""
        import wandb

        config = self._config
        _check_login(config.mode)
        identifier = read_identifier(run.run_dir, "wandb")
        if identifier is None:
            identifier = secrets.token_hex(4)
            write_identifier(run.run_dir, "wandb", identifier)
        self._run: Any = wandb.init(
            project=config.project,
            entity=config.entity,
            name=config.name or run.run_dir.name,
            group=config.group,
            tags=list(run.tags),
            config=dict(run.settings),
            dir=str(run.run_dir),
            id=identifier,
            resume="allow",
            mode=config.mode,
            # The run prints for itself, and its own signal handlers save a checkpoint.
            settings=wandb.Settings(console="off", silent=True, init_timeout=INIT_SECONDS),
        )
        for handler in logging.getLogger("wandb").handlers:
            setattr(handler, "handleError", _ignore)  # noqa: B010  # a method of a third party
        # W&B drops values of earlier steps, which a run that was killed repeats after a resume.
        # With a step metric of our own, they are kept.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log one line."""
        self._run.log({"step": step, **metrics})

    def write_evaluation(self, step: int, returns: Sequence[float]) -> None:
        """Log a histogram of the returns."""
        import wandb

        self._run.log({"step": step, "eval_returns": wandb.Histogram(list(returns))})

    def close(self, outcome: str) -> None:
        """Finish the W&B run; one that failed or was interrupted has exit code 1."""
        self._run.summary["state"] = outcome
        self._run.finish(exit_code=0 if outcome in ("completed", "stopped") else 1)
