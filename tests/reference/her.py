"""Hindsight relabeling in plain NumPy, from the paper (arXiv 1707.01495, sections 4.2 and 4.5).

Transitions are stored individually, and an episode is found by searching all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
GoalFunction = Callable[[Array, Array], float]


@dataclass(frozen=True)
class Transition:
    """(s‖g, a, r, s'‖g') with the goals that s and s' achieve, of one environment."""

    env: int
    observation: Array
    goal: Array
    action: Array
    reward: float
    next_observation: Array
    next_goal: Array
    next_achieved: Array
    terminated: bool
    ended: bool


def episode_of(history: list[Transition], index: int) -> list[int]:
    """Return the indices of the transitions of ``index``'s episode, in order."""
    env = history[index].env
    episode: list[int] = []
    for place, transition in enumerate(history):
        if transition.env != env:
            continue
        episode.append(place)
        if transition.ended:
            if index in episode:
                return episode
            episode = []
    return episode


def goal_sources(history: list[Transition], index: int, strategy: str, capacity: int) -> list[int]:
    """Return the transitions whose next state may become the goal; none if unfinished."""
    episode = episode_of(history, index)
    if not history[episode[-1]].ended:
        return []
    stored = [place for place in episode if place >= len(history) - capacity]
    if strategy == "final":
        return stored[-1:]
    if strategy == "future":
        return [place for place in stored if place >= index]
    return stored


def relabel(
    transition: Transition,
    goal: Array,
    reward: GoalFunction,
    terminated: GoalFunction | None,
) -> Transition:
    """Return the transition with ``goal`` as the desired goal: r' = r(s', g')."""
    ended = transition.terminated
    if terminated is not None:
        ended = bool(terminated(transition.next_achieved, goal))
    return replace(
        transition,
        goal=goal,
        next_goal=goal,
        reward=reward(transition.next_achieved, goal),
        terminated=ended,
    )


def sample(
    history: list[Transition],
    uniform: Array,
    *,
    capacity: int,
    strategy: str,
    ratio: float,
    reward: GoalFunction,
    terminated: GoalFunction | None,
) -> list[Transition]:
    """Return a batch; three uniform numbers choose the transition, relabeling and the goal."""
    batch = []
    oldest = max(0, len(history) - capacity)
    for which, whether, source in uniform.T:
        index = oldest + int(which * (len(history) - oldest))
        transition = history[index]
        sources = goal_sources(history, index, strategy, capacity)
        if whether < ratio and sources:
            goal = history[sources[int(source * len(sources))]].next_achieved
            transition = relabel(transition, goal, reward, terminated)
        batch.append(transition)
    return batch
