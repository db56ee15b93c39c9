"""Tunings that learn from earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.trials import TrialIndex, TrialStatus
from rl_training.tuning.tuning import TuningResult
from tests.tuning.simulated import SimulatedExecutor, outcomes, tuning
from tests.tuning.synthetic import CONFIG, SPACE


def run(folder: Path, *warm_start: Path, **changes: Any) -> TuningResult:
    return tuning(**changes).run(
        folder, warm_start=warm_start, executor=SimulatedExecutor(), progress=False
    )


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "tuning"
    run(folder, trials=15)
    return folder


def test_trials_with_comparable_values_are_learned_from(tmp_path: Path, earlier: Path) -> None:
    result = run(tmp_path / "tuning", earlier, trials=8, seed=1, sampler="tpe")
    index = TrialIndex.open(tmp_path / "tuning")
    old = TrialIndex.open(earlier)
    assert [prior.params for prior in index.priors] == [trial.params for trial in old]
    assert [prior.value for prior in index.priors] == [trial.value for trial in old]
    assert len(result.trials) == 8
    late = [trial.params for trial in result.trials[1:]]
    assert sum(abs(p["x"] - 0.3) + abs(p["y"] + 0.5) for p in late) / len(late) < 0.8
    assert not {str(p) for p in late} & {str(trial.params) for trial in old}


def test_the_best_settings_of_another_task_are_tried_first(tmp_path: Path, earlier: Path) -> None:
    """Such as after a tuning with a smaller budget, whose values are not comparable."""
    longer = CONFIG | {"total_timesteps": 90}
    result = run(tmp_path / "tuning", earlier, trials=8, config=longer)
    old = TrialIndex.open(earlier).with_status(TrialStatus.COMPLETE)
    best = sorted(old, key=lambda trial: -(trial.value or 0.0))[:5]
    wanted = [trial.params for trial in best if trial.params != {"x": 0.0, "y": 0.0}]
    origins = [trial.origin for trial in result.trials]
    assert origins == ["config", *["warm start"] * len(wanted)] + ["sampler"] * (7 - len(wanted))
    assert [trial.params for trial in result.trials[1 : len(wanted) + 1]] == wanted
    assert TrialIndex.open(tmp_path / "tuning").priors == []


def test_a_key_that_is_new_has_the_value_of_the_config(tmp_path: Path, earlier: Path) -> None:
    wider = dict(SPACE) | {"learning_rate": {"low": 0.01, "high": 0.1}}
    run(tmp_path / "tuning", earlier, trials=2, space=wider)
    index = TrialIndex.open(tmp_path / "tuning")
    assert {prior.params["learning_rate"] for prior in index.priors} == {0.05}


def test_a_warm_start_is_recorded_and_not_read_again(tmp_path: Path, earlier: Path) -> None:
    run(tmp_path / "whole", earlier, trials=6)
    run(tmp_path / "tuning", earlier, trials=3)
    run(tmp_path / "tuning", tmp_path / "removed", trials=6)
    assert outcomes(tmp_path / "tuning") == outcomes(tmp_path / "whole")


def test_a_folder_without_usable_trials_is_refused(tmp_path: Path, earlier: Path) -> None:
    with pytest.raises(ConfigError, match="has no complete trial whose settings belong"):
        run(tmp_path / "tuning", earlier, space={"x": [-0.5, 0.5]})
    with pytest.raises(ConfigError, match=r"is not a folder with an index\.jsonl"):
        run(tmp_path / "tuning", tmp_path / "missing")
    assert not (tmp_path / "tuning").exists()
