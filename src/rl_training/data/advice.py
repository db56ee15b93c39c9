"""Advice on recorded data: what makes learning fail, and which setting helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rl_training.data.action_units import action_range
from rl_training.data.inspection import differing_rows, hash_rows
from rl_training.data.recorded import FloatRows, RecordedData
from rl_training.text import counted
from rl_training.types import EnvSpec

SMALL_RANGE = 0.25
"""Share of an action's bounds below which recorded actions cover a small part of them."""
SCALE_RATIO = 100.0
"""Ratio of standard deviations from which scales of observations differ much."""
DUPLICATES = 0.01
"""Share of rows that repeat earlier ones from which they count as duplicated."""
ROWS = 200_000
SAMPLE_BYTES = 64 << 20
"""Number and size of the rows that are examined."""


class Advice(NamedTuple):
    """One sentence of advice, without a period."""

    text: str
    warns: bool = True
    """Whether a run should warn; otherwise the data may well be as intended."""


@dataclass(frozen=True)
class DataSettings:
    """Settings of a run that advice depends on."""

    normalizes: bool = False
    """Whether observations are normalized."""
    limits_actions: bool = False
    """Whether actions are limited to the range of the data."""


def advise(
    dataset: RecordedData,
    spec: EnvSpec | None = None,
    settings: DataSettings | None = None,
    time_limit: int | None = None,
) -> list[Advice]:
    """Return advice on a dataset, each in one sentence.

    Args:
        dataset: The data, with observations as recorded.
        spec: The bounds of the actions in the units of ``dataset``; None if they are unknown.
        settings: Settings of the run; by default, none that advice suggests is set.
        time_limit: Steps of an episode after which the environment cuts it off.
    """
    settings = settings or DataSettings()
    found: list[Advice] = []
    count = min(len(dataset), ROWS, max(1, SAMPLE_BYTES // (4 * dataset.layout.width)))
    spread = np.linspace(0, len(dataset) - 1, count).astype(np.int64)
    sample, slices = (
        dataset.subset(torch.from_numpy(spread)).rows.cpu().numpy(),
        dataset.layout.slices,
    )
    if spec is not None and not spec.discrete and not settings.limits_actions:
        found += _on_actions(sample[:, slices["actions"]], spec)
    if not settings.normalizes:
        found += _on_scales(sample[:, slices["observations"]][:, : dataset.vector_dim])
    first = dataset.subset(torch.arange(count)).rows.cpu().numpy()
    return [*found, *_on_ends(dataset, time_limit), *_on_order(dataset, first)]


def _on_actions(actions: FloatRows, spec: EnvSpec) -> Iterator[Advice]:
    least, most = action_range([actions], spec.action_dim)
    widths = np.subtract(spec.action_high, spec.action_low)
    share = float(np.median((most.astype(np.float64) - least) / widths))
    if share < SMALL_RANGE:
        yield Advice(
            f"actions cover only {100 * share:.2g}% of the environment's range: set "
            "action_range=data, which scales actions by the data's range"
        )


def _on_scales(obs: FloatRows) -> Iterator[Advice]:
    std = obs.std(axis=0, dtype=np.float64)
    varying = np.flatnonzero(std > 0)
    if len(varying) < 2:
        return
    low, high = (int(varying[place(std[varying])]) for place in (np.argmin, np.argmax))
    ratio = std[high] / std[low]
    if ratio > SCALE_RATIO:
        yield Advice(
            f"scales of observations differ by a factor of {ratio:,.0f} (the standard deviation of "
            f"entry {high} is {std[high]:.3g}, that of entry {low} is {std[low]:.3g}): set "
            "normalize_states=true"
        )


def _on_ends(dataset: RecordedData, time_limit: int | None) -> Iterator[Advice]:
    bounds = dataset.episode_bounds()
    terminations, truncations = dataset.column("terminations"), dataset.column("truncations")
    lengths = np.diff(bounds)
    cut = ~dataset.whole_episodes(time_limit) if len(lengths) > 2 else np.zeros(len(lengths), bool)
    last = bounds[-1] - 1
    if terminations[last] == 0 and truncations[last] == 0:
        cut[-1] = True
    if cut.any():
        yield Advice(
            f"{counted(int(cut.sum()), 'episode')} of {len(lengths)} "
            f"{'is' if cut.sum() == 1 else 'are'} cut off before the end: leave return_scaling off "
            "or remove them if their returns matter, and mark their last rows in 'timeouts'",
            warns=bool(cut[:-1].any()),  # a recording often stops within its last episode
        )
    if not terminations.any():
        yield Advice(
            "no episode terminates, so values are bootstrapped at every end: if some episodes end "
            "the task, by success or failure, mark their last rows in 'terminals'",
            warns=len(np.unique(lengths[:-1])) > 1,  # otherwise they end at a time limit
        )


def _on_order(dataset: RecordedData, rows: FloatRows) -> Iterator[Advice]:
    apart = differing_rows(dataset, rows)
    first = f" of the first {len(rows):,}" if len(rows) < len(dataset) else ""
    keys = hash_rows(rows.view(np.uint32))
    repeated = len(keys) - len(np.unique(keys))
    if repeated > DUPLICATES * len(rows):
        yield Advice(
            f"{counted(repeated, 'row')}{first} ({repeated / len(rows):.0%}) repeat earlier ones "
            "and count several times: remove them, unless that is intended"
        )
    ended = (dataset.column("terminations") + dataset.column("truncations"))[: len(apart)] > 0
    jumps = int(np.count_nonzero(apart & ~ended))
    if jumps:
        yield Advice(
            f"in {counted(jumps, 'row')}{first}, the next observation is not that of the following "
            "row although no episode ends: mark these rows in 'timeouts', and leave n_step at 1 "
            "otherwise"
        )
