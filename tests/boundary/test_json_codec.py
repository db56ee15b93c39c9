"""Arrays in JSON: round trips and forged content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.boundary import json_codec
from rl_training.boundary.values import StateError, report_state_errors
from rl_training.errors import CheckpointError


@pytest.mark.parametrize("dtype", ["f4", "u1", "i8", "b1", "f8"])
def test_arrays_round_trip(dtype: str) -> None:
    array = np.array([[0, 1], [1, 0]], dtype)
    found = json_codec.loads(json_codec.dumps({"a": array}))["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "content",
    [
        [",f4", [1], ""],
        ["(2,)f4", [1], ""],
        ["O", [1], ""],
        [["<f4"], [1], ""],
        ["<f4", ["a\x1b[2J"], ""],
        ["<f4", [-1], ""],
        ["<f4", [True], ""],
    ],
)
def test_forged_arrays_are_rejected_with_printable_errors(content: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"an array (of|has the invalid shape)") as caught:
        json_codec.decode({"@array": content})
    assert str(caught.value).isprintable()


def test_error_quotes_at_most_one_line_of_a_file() -> None:
    with pytest.raises(CheckpointError) as caught, report_state_errors(Path("state.json")):
        raise StateError("class is " + "x\x07" * 5_000)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()
