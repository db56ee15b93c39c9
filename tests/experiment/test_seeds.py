"""Seeds are a count or a list."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.seeds import as_seeds


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (3, (0, 1, 2)),
        (1e1, tuple(range(10))),
        ("3", (0, 1, 2)),
        ([3], (3,)),
        ((7, 0), (7, 0)),
        ("7,0", (7, 0)),
        ("[7, 0]", (7, 0)),
        ("7,", (7,)),
    ],
)
def test_counts_and_lists(given: Any, seeds: tuple[int, ...]) -> None:
    assert as_seeds(given) == seeds


@pytest.mark.parametrize(
    "given", [0, -1, True, None, [], [-1], [True], [1.5], "all", "1;2", "", 10**9, {"a": 1}, 2**128]
)
def test_anything_else_is_one_sentence(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"--seeds = .*should be a count, such as 5, or a list"):
        as_seeds(given, "--seeds")


def test_a_repeated_seed_is_rejected() -> None:
    with pytest.raises(ConfigError, match="the seed 4 appears twice"):
        as_seeds([3, 4, 4])
