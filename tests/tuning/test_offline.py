"""Tunings by fitted Q evaluation, which play no episode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_training.errors import ConfigError
from rl_training.runtime.logging import read_metrics
from rl_training.study.index import StudyIndex
from rl_training.tuning.report import write_tuning_report
from rl_training.tuning.tuning import Tuning
from rl_training.tuning.winner import ESTIMATED

MakeConfig = Callable[..., dict[str, Any]]


def offline_tuning(config: dict[str, Any], **changes: Any) -> Tuning:
    options: dict[str, Any] = {"trials": 2, "seeds": 1, "validation_seeds": 2, "fqe_updates": 3}
    space = {"learning_rate": [1e-3, 3e-3]}
    return Tuning(config, space=space, objective="fqe", **options | changes)


def test_a_trial_is_valued_by_fitted_q_evaluation(small_config: MakeConfig, tmp_path: Path) -> None:
    config = small_config(algo="iql", total_timesteps=20)
    folder = tmp_path / "tuning"
    result = offline_tuning(config).run(folder, cores=1, progress=False)
    estimates = {run.key: run.results["fqe"] for run in StudyIndex.open(folder)}
    for trial in result.trials:
        (key,) = trial.run_keys((0,))
        assert trial.value == estimates[key]
    assert result.best is not None
    assert result.best.value == max(trial.value or 0.0 for trial in result.trials)
    assert result.validation is not None
    assert len(result.validation.base) == 2
    played = [row for run in StudyIndex.open(folder) for row in read_metrics(run.path)]
    assert not any("eval_return_mean" in row for row in played)
    # What the numbers mean is said where they are read, and the config is an ordinary one.
    assert f"# {ESTIMATED}\n" in result.config_file.read_text()
    assert ESTIMATED in write_tuning_report(folder).read_text()
    best = yaml.safe_load(result.config_file.read_text())
    assert best["algo_kwargs"]["learning_rate"] == result.best.params["learning_rate"]


def test_discounts_are_not_compared(small_config: MakeConfig) -> None:
    config = small_config(algo="iql", total_timesteps=20)
    with pytest.raises(ConfigError, match="gamma: it cannot be tuned: values with different disc"):
        Tuning(config, space={"gamma": [0.9, 0.99]}, objective="fqe").plan()
