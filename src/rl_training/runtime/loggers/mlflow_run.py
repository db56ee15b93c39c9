"""MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from rl_training.runtime.loggers.base import LoggedRun, Logger
from rl_training.runtime.loggers.config import MLflowConfig
from rl_training.runtime.loggers.identifiers import read_identifier, write_identifier

BATCH = 100
"""Number of parameters that one request may contain."""
LONGEST_VALUE = 500
"""Number of characters of a parameter's value; older servers reject longer ones."""

_UNSUPPORTED = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow does not allow in the name of a metric."""

STATUS = {"completed": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}


class MLflowLogger(Logger):
    """An MLflow run with the metrics of the training run; a resume continues the same run."""

    name = "MLflow"

    def __init__(self, config: MLflowConfig) -> None:
        self._config = config

    def start(self, run: LoggedRun) -> None:
        """Create the MLflow run, or continue the one that the run folder records."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        # Otherwise the client prints the address of the run to standard output.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        # The client object leaves MLflow's global state, such as an active run, alone.
        self._client: Any = MlflowClient(tracking_uri=self._config.tracking_uri)
        identifier = read_identifier(run.run_dir, "mlflow")
        if identifier is not None:
            self._id = identifier
            self._client.update_run(identifier, status="RUNNING")
            return
        self._id = self._create(run)
        write_identifier(run.run_dir, "mlflow", self._id)
        params = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in run.settings.items()]
        for start in range(0, len(params), BATCH):
            self._client.log_batch(self._id, params=params[start : start + BATCH])

    def _create(self, run: LoggedRun) -> str:
        name = self._config.experiment
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        created = self._client.create_run(
            experiment,
            run_name=self._config.name or run.run_dir.name,
            tags={f"tag.{tag}": "true" for tag in run.tags},
        )
        return str(created.info.run_id)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log one line."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        named = {_UNSUPPORTED.sub("_", key): float(value) for key, value in metrics.items()}
        values = [Metric(key, value, now, step) for key, value in named.items()]
        self._client.log_batch(self._id, metrics=values)

    def close(self, outcome: str) -> None:
        """End the MLflow run with the status of the training run."""
        self._client.set_terminated(self._id, status=STATUS.get(outcome, "FAILED"))
