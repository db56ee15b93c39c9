"""How good is the policy that a few evaluations in the environment would choose?

Offline, many settings can be trained, but only a few policies can be tried. This is the protocol of
Jackson et al. (https://arxiv.org/abs/2504.11453): the policies of an algorithm, from all settings
and seeds, are the arms of a bandit, each episode in the environment is one pull, and the score
after *n* episodes is the true value of the policy that looks best by then. An algorithm that is
only good with the right settings is worse here than one that is good with most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.boundary.journal import Journal, read_journal
from rl_training.errors import ConfigError
from rl_training.statistics import CurveEstimate
from rl_training.study.folder import report_failed_writes
from rl_training.study.index import StudyIndex, StudyRun
from rl_training.study.records import TRIAL_PREFIX, TUNING_FILE, RunStatus

EVALUATIONS_FILE = "evaluations.jsonl"
"""Returns of the policies, kept so that they are played only once."""
CANDIDATES = 8
"""Number of policies among which each simulated user chooses."""
REPEATS = 1_000
"""Number of simulated users."""
EXPLORATION = 2.0
"""Weight of the bonus for policies that were tried rarely, as in UCB1."""
SEED = 20_000
"""Seed of the first episode, which no evaluation during training uses."""

Returns = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Selection:
    """What choosing among the policies of one algorithm on one task is worth."""

    algo: str
    task: str
    policies: int
    candidates: int
    curve: CurveEstimate
    """Value of the chosen policy by the number of episodes: the mean over users, and the range in
    which 95% of them are."""
    average: float
    """Mean over all policies: the value of a random one."""
    best: float
    """Value of the best policy."""

    def at(self, evaluations: int) -> tuple[float, float, float]:
        """Return the mean and the range after a number of episodes."""
        index, curve = min(evaluations, len(self.curve.x)) - 1, self.curve
        return float(curve.value[index]), float(curve.low[index]), float(curve.high[index])

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        names = ("evaluations", "value", "low", "high")
        parts = (self.curve.x, self.curve.value, self.curve.low, self.curve.high)
        return {
            "algo": self.algo,
            "task": self.task,
            "policies": self.policies,
            "candidates": self.candidates,
            "average": self.average,
            "best": self.best,
            **{name: part.tolist() for name, part in zip(names, parts, strict=True)},
        }


def selection_curve(
    returns: Returns,
    evaluations: int,
    *,
    candidates: int = CANDIDATES,
    repeats: int = REPEATS,
    seed: int = 0,
) -> CurveEstimate:
    """Return the value of the policy that looks best, by the number of episodes that were played.

    Args:
        returns: Returns of each policy in many episodes, ``[policies, episodes]``.
        evaluations: Largest number of episodes.
        candidates: Number of policies that each user has, drawn from all of them.
        repeats: Number of users.
        seed: Seed of the simulation.
    """
    returns = np.asarray(returns, dtype=np.float64)
    policies, episodes = returns.shape
    candidates = min(candidates, policies)
    rng = np.random.default_rng(seed)
    arms = rng.permuted(np.tile(np.arange(policies), (repeats, 1)), axis=1)[:, :candidates]
    spread = float(np.ptp(returns)) or 1.0
    true = returns.mean(axis=1)
    users = np.arange(repeats)
    counts, sums = np.zeros((repeats, candidates)), np.zeros((repeats, candidates))
    values = np.empty((evaluations, repeats))
    for number in range(evaluations):
        if number < candidates:  # each policy once; their order is random already
            chosen = np.full(repeats, number)
        else:
            bonus = np.sqrt(EXPLORATION * np.log(number + 1) / counts)
            chosen = np.argmax(sums / counts / spread + bonus, axis=1)
        played = returns[arms[users, chosen], rng.integers(episodes, size=repeats)]
        counts[users, chosen] += 1
        sums[users, chosen] += played
        means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
        values[number] = true[arms[users, np.argmax(means, axis=1)]]
    low, high = np.percentile(values, [2.5, 97.5], axis=1)
    return CurveEstimate(np.arange(1.0, evaluations + 1), values.mean(axis=1), low, high)


# --- Studies --------------------------------------------------------------------------------


def select(
    folder: str | Path,
    *,
    episodes: int = 20,
    evaluations: int = 100,
    candidates: int = CANDIDATES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Selection]:
    """Play the last policies of a study or a tuning, and return what choosing among them is worth.

    Args:
        folder: Folder of the study.
        episodes: Episodes of each policy, which are played once and kept.
        evaluations: Largest number of episodes that a user may spend on choosing.
        candidates: Number of policies that each user has.
        progress: Called with the number of policies that were played, and their total number.
    """
    for name, value in {
        "episodes": episodes,
        "evaluations": evaluations,
        "candidates": candidates,
    }.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 100_000:
            raise ConfigError(f"{name} = {value!r}: should be an integer from 1 to 100,000.")
    index = StudyIndex.open(folder)
    runs = candidate_runs(index)
    groups: dict[tuple[str, str], list[StudyRun]] = {}
    for run in runs:
        groups.setdefault((str(run.group.config["algo"]), run.task), []).append(run)
    if not any(len(found) > 1 for found in groups.values()):
        raise ConfigError(
            f"{folder} has no algorithm with two or more finished runs on a task, so there is "
            "nothing to choose from: run it first, with several settings or seeds."
        )
    returns = play(index, runs, episodes, progress)
    found = []
    for (algo, task), members in groups.items():
        if len(members) < 2:
            continue
        table = np.array([returns[run.key] for run in members])
        means = table.mean(axis=1)
        found.append(
            Selection(
                algo=algo,
                task=task,
                policies=len(members),
                candidates=min(candidates, len(members)),
                curve=selection_curve(table, evaluations, candidates=candidates),
                average=float(means.mean()),
                best=float(means.max()),
            )
        )
    return found


def candidate_runs(index: StudyIndex) -> list[StudyRun]:
    """Return the runs whose policies are candidates: those that reached their budget.

    The runs of a tuning that validate its outcome are not among them.
    """
    finished = [run for run in index if run.status is RunStatus.FINISHED]
    if (index.path / TUNING_FILE).is_file():
        return [run for run in finished if run.label.startswith(TRIAL_PREFIX)]
    return finished


def play(
    index: StudyIndex,
    runs: Sequence[StudyRun],
    episodes: int,
    progress: Callable[[int, int], None],
) -> dict[str, list[float]]:
    """Return the returns of the last policy of each run; episodes of earlier calls are kept."""
    file = index.path / EVALUATIONS_FILE
    found: dict[str, list[float]] = {}
    for row in read_journal(file) if file.is_file() else ():
        if row and _is_played(row, episodes):
            found[row["run"]] = [float(value) for value in row["returns"]]
    journal = Journal(file)
    for number, run in enumerate(runs):
        progress(number, len(runs))
        if run.key not in found:
            found[run.key] = play_policy(run, episodes)
            row = {"run": run.key, "seed": SEED, "returns": found[run.key]}
            with report_failed_writes(index.path):
                journal.append([row])
    journal.close()
    progress(len(runs), len(runs))
    return found


def _is_played(row: dict[str, Any], episodes: int) -> bool:
    values = row.get("returns")
    return (
        isinstance(row.get("run"), str)
        and row.get("seed") == SEED
        and isinstance(values, list)
        and len(values) == episodes
        and all(isinstance(value, int | float) for value in values)
    )


def play_policy(run: StudyRun, episodes: int) -> list[float]:
    """Play the last policy of a run, always from the same starts."""
    from rl_training.api.checkpoints import choose_env
    from rl_training.experiment.saved_run import SavedRun
    from rl_training.runtime.evaluation import Evaluator

    checkpoint = SavedRun.load(run.path)
    place = choose_env(checkpoint, None, None)
    if place is None:
        raise ConfigError(
            f"{run.path} was trained without an environment, so its policy cannot be tried."
        )
    masks = checkpoint.spec.action_masks
    evaluator = Evaluator(place.env, place.kwargs, seed=SEED, action_masks=masks)
    with closing(evaluator):
        return list(evaluator.evaluate(checkpoint.load_policy("cpu"), episodes).returns)
