"""Public datasets, if their folder exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.api.datasets import inspect_data, validate_data
from rl_training.errors import ConfigError

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the dataset folder does not exist")

# file, matching environment, rows, episodes, return mean / median / max
FILES = [
    ("pendulum-replay-d3rlpy-v1.1.0.npz", "Pendulum-v1", 99_000, 500, (-180, -126, -0.7)),
    ("pendulum-random-d3rlpy-v1.1.0.npz", "Pendulum-v1", 99_000, 500, (-1218, -1179, -745)),
    ("pendulum-medium-sac-rllib.npz", "Pendulum-v1", 10_000, 50, (-524, -253, -0.9)),
    ("cartpole-replay-d3rlpy-v1.1.0.npz", "CartPole-v1", 99_732, 1_582, (63, 36, 199)),
    ("halfcheetah-expert-opolo-v2.npz", "HalfCheetah-v5", 9_990, 10, (7575, 7526, 7909)),
    ("hopper-expert-opolo-v2.npz", "Hopper-v5", 9_990, 10, (3585, 3585, 3592)),
]


@pytest.mark.parametrize(("name", "env_id", "rows", "episodes", "returns"), FILES)
def test_files_have_the_documented_statistics(
    name: str, env_id: str, rows: int, episodes: int, returns: tuple[float, float, float]
) -> None:
    report, problems = validate_data(str(DATA / name), env_id)
    assert (report.rows, report.episodes, problems) == (rows, episodes, [])
    found = (report.return_mean, report.return_quartiles[2], report.return_quartiles[4])
    assert found == pytest.approx(returns, abs=0.6)


def test_file_with_other_column_names_is_read() -> None:
    path = str(DATA / "safetyhalfcheetah-neorl2-raw.npz")
    report = inspect_data(path)
    assert (report.rows, report.episodes, report.obs_dim) == (2_000, 2, 18)
    with pytest.raises(ConfigError, match="use data from the same environment"):
        validate_data(path, "HalfCheetah-v5")


def test_minari_dataset_has_the_documented_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(DATA / "minari"))
    report, problems = validate_data("D4RL/door/human-v2")
    assert (report.rows, report.episodes, problems) == (6_729, 25, [])
    assert (report.obs_dim, report.action_dim) == (39, 28)
    found = (report.return_mean, report.return_quartiles[2], report.return_quartiles[4])
    assert found == pytest.approx((803, 754, 1505), abs=0.6)
