"""Entries of observations: flattening agrees with Gymnasium, and bad values are rejected."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.envs.observations import flat_bounds, read_entries
from rl_training.observations import (
    Entry,
    ObservationError,
    check_entries,
    flatten_observation,
    is_structured,
    leaves,
)
from rl_training.types import EnvSpec

NESTED = spaces.Dict(
    {
        "mode": spaces.Discrete(4, start=-1),
        "arm": spaces.Tuple((spaces.Box(-1.0, 1.0, (2, 3)), spaces.MultiBinary([2, 2]))),
        "switch": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    }
)


def sample_leaf() -> st.SearchStrategy[gym.Space[Any]]:
    shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    dtypes = st.sampled_from([np.float32, np.float64, np.int32, np.int64])
    counts = st.lists(st.integers(1, 4), min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda shape, kind: spaces.Box(-3, 3, shape, kind), shapes, dtypes),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), *[st.integers(1, 5)] * 2),
        st.builds(spaces.MultiDiscrete, counts),
        st.builds(spaces.MultiBinary, st.integers(1, 4)),
    )


def sample_space() -> st.SearchStrategy[gym.Space[Any]]:
    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        keys = st.text(alphabet="abc", min_size=1, max_size=2)
        return st.one_of(
            st.dictionaries(keys, inner, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts))),
        )

    return st.recursive(sample_leaf(), around, max_leaves=5)


@settings(max_examples=60)
@given(space=sample_space(), seed=st.integers(0, 1000), rows=st.integers(1, 3))
def test_flat_vectors_are_those_of_gymnasium(space: gym.Space[Any], seed: int, rows: int) -> None:
    entries = read_entries(space, "Some-v0")
    space.seed(seed)
    samples = [space.sample() for _ in range(rows)]
    expected = np.stack([np.asarray(spaces.flatten(space, one)) for one in samples])
    expected = expected.astype(np.float32)
    low, high = flat_bounds(space)
    assert (low <= expected).all()
    assert (expected <= high).all()
    if not entries:  # a flat Box is already a vector
        assert isinstance(space, spaces.Box)
        return
    check_entries(entries, spaces.flatdim(space))
    for one, row in zip(samples, expected, strict=True):
        flat = flatten_observation(one, entries)
        np.testing.assert_array_equal(flat, row)
        assert flat.dtype == np.float32
    names = leaves(samples[0])
    assert list(names) == [entry.name for entry in entries]
    columns = {name: np.stack([leaves(one)[name] for one in samples]) for name in names}
    batch = columns if set(columns) != {""} else columns[""]
    np.testing.assert_array_equal(flatten_observation(batch, entries), expected)
    spec = EnvSpec(spaces.flatdim(space), 1, (-1.0,), (1.0,), entries=entries)
    assert EnvSpec.from_dict(spec.to_dict()) == spec


def test_entries_are_named_by_their_keys() -> None:
    entries = read_entries(NESTED, "Some-v0")
    assert [(entry.name, entry.kind, entry.offset, entry.width) for entry in entries] == [
        ("arm/0", "vector", 0, 6),
        ("arm/1", "multi_binary", 6, 4),
        ("mode", "discrete", 10, 4),
        ("switch", "multi_discrete", 14, 14),
    ]
    assert list(map(str, entries)) == [
        "arm/0: Box([2, 3])",
        "arm/1: MultiBinary([2, 2])",
        "mode: Discrete(4)",
        "switch: MultiDiscrete([2, 3, 4, 5])",
    ]


def test_order_of_an_ordered_space_is_kept() -> None:
    box = spaces.Box(-1.0, 1.0, (1,))
    space = spaces.Dict(z=box, a=box)
    assert [entry.name for entry in read_entries(space, "Some-v0")] == list(space.spaces)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mode": 3}, "entry 'mode' contains 3, but should contain integers from -1 to 2"),
        ({"mode": 0.5}, "entry 'mode' contains 0.5"),
        ({"mode": "left"}, "entry 'mode' has the type <U4"),
        ({"switch": np.zeros((2, 3), int)}, r"'switch' has the type int64 and the shape \[2, 3\]"),
        ({"mode": np.zeros(2, int)}, "all entries of a batch need the same number of rows"),
        ({"mode": [[1], [2, 3]]}, "entry 'mode' is not an array of numbers"),
    ],
)
def test_wrong_values_are_rejected(change: dict[str, Any], sentence: str) -> None:
    NESTED.seed(0)
    sample = NESTED.sample() | change
    with pytest.raises(ObservationError, match=sentence):
        flatten_observation(sample, read_entries(NESTED, "Some-v0"))


def test_missing_entries_are_rejected() -> None:
    with pytest.raises(ObservationError, match="it has the entries mode, but should have arm/0"):
        flatten_observation({"mode": 0}, read_entries(NESTED, "Some-v0"))


@pytest.mark.parametrize(
    ("space", "structured", "flat"),
    [
        (spaces.Discrete(3), [2, np.array(2), np.array([0, 2, 1])], [np.eye(3)[0], np.eye(3)]),
        (spaces.MultiDiscrete([2, 2]), [np.zeros(2, int), np.zeros((3, 2), int)], [np.zeros(4)]),
        (spaces.Box(-1, 1, (2, 3)), [np.zeros((2, 3)), np.zeros((4, 2, 3))], [np.zeros((4, 6))]),
        (spaces.Box(-1, 1, ()), [0.5, np.array(0.5), np.zeros(4)], [np.zeros(1), np.zeros((4, 1))]),
    ],
)
def test_single_arrays_may_have_either_form(
    space: gym.Space[Any], structured: list[Any], flat: list[Any]
) -> None:
    entries = read_entries(space, "Some-v0")
    assert all(is_structured(obs, entries) for obs in structured)
    assert not any(is_structured(obs, entries) for obs in flat)


def entry(**changes: Any) -> dict[str, Any]:
    return Entry("a", "vector", (2,), "float32", 0).to_dict() | changes


@pytest.mark.parametrize(
    "entries",
    [
        [entry(offset=1)],
        [entry(shape=[3])],
        [entry(shape=[-2])],
        [entry(shape=[True, 2])],
        [entry(shape="2")],
        [entry(kind="picture")],
        [entry(kind=["vector"])],
        [entry(kind="discrete")],
        [entry(choices=[2])],
        [entry(name=3)],
        [entry(extra=1)],
        [entry(shape=[1]), entry(shape=[1], offset=1)],
        [entry(name=""), entry(offset=2)],
        ["a"],
        "ab",
        {},
    ],
)
def test_altered_entries_of_a_checkpoint_are_rejected(entries: Any) -> None:
    spec = EnvSpec(2, 1, (-1.0,), (1.0,)).to_dict()
    EnvSpec.from_dict(spec | {"entries": [entry()]})
    with pytest.raises((ValueError, TypeError)):
        EnvSpec.from_dict(spec | {"entries": entries})


def test_flat_specs_are_saved_as_before() -> None:
    assert "entries" not in EnvSpec(2, 1, (-1.0,), (1.0,)).to_dict()
