"""Normalized scores: packaged references, datasets, and the user's own references."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.errors import ConfigError
from rl_training.scores import Reference, normalized_score, read_references, reference_returns

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "reference_returns.json"


def test_random_is_0_and_expert_is_1() -> None:
    assert normalized_score("HalfCheetah-v5", -280.178953) == 0
    assert normalized_score("HalfCheetah-v5", 12135.0) == 1
    assert normalized_score("Hopper-v4", 3234.3) == normalized_score("Hopper-v5", 3234.3) == 1
    assert normalized_score("MyEnv-v0", 3.0) is None
    assert normalized_score(None, 3.0) is None


@pytest.mark.parametrize(
    ("dataset", "env_id"),
    [
        ("mujoco/halfcheetah/expert-v0", "HalfCheetah-v5"),
        ("halfcheetah-medium-replay-v2", "HalfCheetah-v5"),
        ("D4RL/door/human-v2", "AdroitHandDoor-v1"),
        ("D4RL/pen/cloned-v2", "AdroitHandPen-v1"),
    ],
)
def test_datasets_have_the_reference_of_their_environment(dataset: str, env_id: str) -> None:
    assert reference_returns(dataset) == reference_returns(env_id) is not None


def test_measured_references_equal_their_record() -> None:
    returns = json.loads(RECORD.read_text())["returns"]
    assert len(returns) >= 15
    for env_id, found in returns.items():
        reference = reference_returns(env_id)
        assert reference is not None
        assert reference.source.startswith("random: measured")
        assert reference.random == pytest.approx(found["mean"], abs=0.1), env_id


def test_every_expert_is_better_than_random_and_has_a_source() -> None:
    for env_id in ("Walker2d-v5", "Pendulum-v1", "Acrobot-v1", "AdroitHandRelocate-v1"):
        reference = reference_returns(env_id)
        assert reference is not None
        assert reference.expert > reference.random
        assert reference.source


def test_custom_references_take_precedence(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("Pendulum-v1: {random: 0, expert: 10}\nMine-v0: {random: 1.5, expert: -2}\n")
    custom = read_references(file)
    assert custom["Mine-v0"] == Reference(1.5, -2, str(file))
    assert normalized_score("Pendulum-v1", 5.0, custom) == 0.5
    assert normalized_score("CartPole-v1", 500.0, custom) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "should map environment ids to their random and expert returns"),
        ("A-v0: 3\n", "'A-v0' = 3: should be a mapping with the keys random and expert"),
        ("A-v0: {random: 3}\n", "'A-v0': The key 'expert' is missing"),
        ("A-v0: {random: 3, expert: 4, best: 4}\n", "Unknown key 'best'"),
        ("A-v0: {random: 3, expert: 3}\n", "random and expert are both 3"),
        ("A-v0: {random: x, expert: 3}\n", "random = 'x': should be a valid number"),
        ("A-v0: !!python/object:os.system {}\n", "is not plain YAML"),
    ],
)
def test_invalid_references_are_one_clear_sentence(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_references(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.yaml is missing"):
        read_references(tmp_path / "absent.yaml")
