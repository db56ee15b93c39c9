"""Inputs and outputs of exported policies: raw observations in, actions of the environment out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.observations import Entry
from rl_training.types import EnvSpec, FloatArray

OBSERVATION, ACTION, ACTION_MASK = "observation", "action", "action_mask"
"""Names of the input of an unstructured observation, of the output, and of the input of masks."""

FLOAT32_MAX = float(np.finfo(np.float32).max)

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Observations of an environment: an array ``[B, *shape]`` for the name of each entry."""


@dataclass(frozen=True)
class PolicyInput:
    """One input of an exported policy: an entry of the observation, all of it, or a mask."""

    entry: Entry
    is_mask: bool = False

    @property
    def name(self) -> str:
        """The name of the entry, with a prefix if it is the name of the output or of the mask."""
        name = self.entry.name or OBSERVATION
        is_taken = name in (ACTION, ACTION_MASK) and not self.is_mask
        return f"{OBSERVATION}/{name}" if is_taken else name

    @property
    def dtype(self) -> str:
        """NumPy type: integers for discrete entries and images, float32 for all vectors."""
        kinds = {"discrete": "int64", "multi_discrete": "int64", "multi_binary": "int8"}
        return (kinds | {"image": "uint8"}).get(self.entry.kind, "float32")

    def example(self, rows: int) -> Tensor:
        """Return observations to trace with."""
        return torch.zeros((rows, *self.entry.shape), dtype=getattr(torch, self.dtype))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the smallest and largest allowed values."""
        entry, name = self.entry, None if self.is_mask else self.entry.name
        bounds: dict[str, Any] = {"low": -FLOAT32_MAX, "high": FLOAT32_MAX}
        if entry.kind == "multi_binary":
            bounds = {"low": 0, "high": 1}
        if entry.kind == "image":
            bounds = {"low": 0, "high": entry.high}
        if entry.choices:
            first = np.reshape(entry.starts, entry.shape)
            last = first + np.reshape(entry.choices, entry.shape) - 1
            bounds = {"low": first.tolist(), "high": last.tolist()}
        shape = list(entry.shape)
        return {"name": self.name, "entry": name, "dtype": self.dtype, "shape": shape} | bounds

    def flatten(self, values: Tensor) -> Tensor:
        """Do the same as `Entry.flatten` with a tensor ``[B, *shape]``."""
        entry = self.entry
        if not entry.choices:
            return values.reshape(-1, entry.width).to(torch.float32)
        columns = values.reshape(-1, len(entry.choices)).unbind(-1)
        return torch.cat(
            [
                (column.unsqueeze(-1) == torch.arange(start, start + count)).to(torch.float32)
                for column, start, count in zip(columns, entry.starts, entry.choices, strict=True)
            ],
            dim=-1,
        )

    def unflatten(self, rows: FloatArray) -> np.ndarray[Any, Any]:
        """Return the values ``[B, *shape]`` of this entry in flat vectors ``[B, obs_dim]``."""
        entry, values = self.entry, rows[:, self.entry.place]
        if entry.choices:
            parts = np.split(values, np.cumsum(entry.choices)[:-1], axis=-1)
            values = np.stack([part.argmax(axis=-1) for part in parts], axis=-1) + entry.starts
        return np.reshape(values, (len(rows), *entry.shape)).astype(self.dtype)


def policy_inputs(spec: EnvSpec) -> tuple[PolicyInput, ...]:
    """Return the inputs of a policy: one for each entry of its observations, and its mask."""
    inputs = tuple(map(PolicyInput, observation_entries(spec)))
    if not spec.action_masks:
        return inputs
    mask = Entry(ACTION_MASK, "multi_binary", (spec.mask_width,), "int8", 0)
    return *inputs, PolicyInput(mask, is_mask=True)


def observation_entries(spec: EnvSpec) -> tuple[Entry, ...]:
    """Return the entries of an observation that a policy needs; a flat Box has one, ``""``."""
    return spec.parts or (Entry("", "vector", (spec.obs_dim,), "float32", 0),)


def policy_output(spec: EnvSpec) -> dict[str, Any]:
    """Describe the output: continuous actions with their bounds, or the number of an action."""
    if spec.action_choices:
        numbers = {"low": spec.first_actions.tolist(), "high": spec.last_actions.tolist()}
        return {"name": ACTION, "dtype": "int64", "shape": [spec.action_width], **numbers}
    if spec.discrete:
        first, last = spec.action_start, spec.action_start + spec.action_dim - 1
        return {"name": ACTION, "dtype": "int64", "shape": [], "low": first, "high": last}
    low, high = list(spec.action_low), list(spec.action_high)
    shape = [spec.action_dim]
    return {"name": ACTION, "dtype": "float32", "shape": shape, "low": low, "high": high}


def unflatten(rows: FloatArray, spec: EnvSpec) -> dict[str, np.ndarray[Any, Any]]:
    """Return the observations of the environment that flat vectors ``[B, obs_dim]`` stand for."""
    return {x.name: PolicyInput(x).unflatten(rows) for x in observation_entries(spec)}
