"""What is asked of Optuna: proposals, pruning and importances, as pure functions."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import optuna
import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.objective import Objective
from rl_training.tuning.optuna_memory import (
    SAMPLERS,
    KnownTrial,
    PruningJudge,
    from_optuna,
    importances,
    propose,
    to_optuna,
)
from rl_training.tuning.space import Choices, Numbers, Space
from rl_training.tuning.trials import TrialStatus

SPACE = Space(
    {
        "x": Numbers(-1, 1),
        "rate": Numbers(1e-5, 1e-1, log=True),
        "count": Numbers(1, 9, is_integer=True),
        "sizes": Choices(([64, 64], [256, 256], None, True, 2, "text")),
    }
)
OBJECTIVE = Objective("last_return", "mean", interval=10, last_step=60)


def complete(value: float, **params: Any) -> KnownTrial:
    points = {point: value - 5 + point for point in range(6)}
    return KnownTrial(params, TrialStatus.COMPLETE, value, points)


def ask(known: list[KnownTrial], number: int, **changes: Any) -> dict[str, Any] | None:
    options: dict[str, Any] = {"sampler": "tpe", "seed": 0, "is_valid": lambda params: True}
    pending = changes.pop("pending", [])
    return propose(changes.pop("space", SPACE), known, pending, number=number, **options | changes)


def history(count: int, seed: int = 0) -> list[KnownTrial]:
    known: list[KnownTrial] = []
    for number in range(count):
        params = ask(known, number, sampler="random", seed=seed)
        assert params is not None
        known.append(complete(-((params["x"] - 0.3) ** 2), **params))
    return known


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_a_proposal_depends_only_on_its_arguments(sampler: str) -> None:
    known = history(12)
    first = ask(known, 12, sampler=sampler)
    optuna.create_study().optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert ask(known, 12, sampler=sampler) == first
    assert first is not None
    assert SPACE.contains(first)
    if sampler != "gp":  # which may find the same optimum with any random numbers
        assert ask(known, 13, sampler=sampler) != first
        assert ask(known, 12, sampler=sampler, seed=1) != first


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=pytest.mark.slow)])
def test_samplers_learn(sampler: str) -> None:
    space, known = Space({"x": Numbers(-1, 1)}), list[KnownTrial]()
    for number in range(25):
        params = ask(known, number, space=space, sampler=sampler)
        assert params is not None
        known.append(complete(-((params["x"] - 0.3) ** 2), **params))
    late = [abs(trial.params["x"] - 0.3) for trial in known[15:]]
    early = [abs(trial.params["x"] - 0.3) for trial in known[:10]]
    assert sum(late) / len(late) < sum(early) / len(early)


def test_pending_trials_are_taken_into_account() -> None:
    known = history(15)
    alone = ask(known, 16)
    assert alone is not None
    assert ask(known, 16, pending=[alone]) != alone


def test_failed_trials_are_bad_ones() -> None:
    space = Space({"x": Numbers(-1, 1)})
    known = [complete(0.0, x=x / 20) for x in range(1, 11)]
    known += [KnownTrial({"x": -x / 20}, TrialStatus.FAILED) for x in range(1, 11)]
    asked = [ask(known, number, space=space) for number in range(20, 40)]
    assert sum(params is not None and params["x"] > 0 for params in asked) >= 15


def test_values_survive_the_way_through_optuna() -> None:
    params = {"x": 0.25, "rate": 0.001, "count": 3, "sizes": [256, 256]}
    stored = to_optuna(SPACE, params)
    assert stored["sizes"] == "[256, 256]"
    assert from_optuna(SPACE, stored) == params
    for choice in (None, True, 2, "text"):
        stored = to_optuna(SPACE, params | {"sizes": choice})
        assert from_optuna(SPACE, stored)["sizes"] is choice


def test_invalid_settings_are_drawn_again() -> None:
    known = history(3)
    for number in range(3, 10):
        params = ask(known, number, is_valid=lambda params: params["x"] > 0)
        assert params is not None
        assert params["x"] > 0
    with pytest.raises(ConfigError, match="None of 100 settings of the space is valid"):
        ask([], 0, is_valid=lambda params: False)


def test_a_setting_is_not_tried_twice() -> None:
    space, known = Space({"a": Choices((1, 2, 3)), "b": Choices((1, 2))}), list[KnownTrial]()
    for number in range(6):
        params = ask(known, number, space=space)
        assert params is not None
        assert params not in [trial.params for trial in known]
        known.append(complete(float(number), **params))
    assert ask(known, 6, space=space) is None


# --- Pruning --------------------------------------------------------------------------------


def judge(known: list[KnownTrial], pruner: str = "median") -> PruningJudge:
    params = {"x": 0.0, "rate": 0.001, "count": 3, "sizes": None}
    return PruningJudge(SPACE, OBJECTIVE, known, params, pruner=pruner)


def test_a_trial_below_the_median_is_pruned() -> None:
    known = history(7)
    bad, good = judge(known), judge(known)
    assert not bad.prunes(0, -100.0)  # the first third of a run is never pruned
    assert not bad.prunes(1, -100.0)
    assert bad.prunes(2, -100.0)
    assert not any(good.prunes(point, 100.0) for point in range(6))


def test_few_trials_prune_nothing() -> None:
    few = judge(history(4))
    assert not any(few.prunes(point, -100.0) for point in range(6))


def test_a_lucky_seed_does_not_protect_the_next_one() -> None:
    known = [
        KnownTrial(trial.params, trial.status, 0.0, dict.fromkeys(range(12), 0.0))
        for trial in history(6)
    ]
    lucky = judge(known)
    assert not any(lucky.prunes(point, 50.0) for point in range(6))
    assert not lucky.prunes(6, -50.0)  # nothing is learned in the first third of any seed
    assert not lucky.prunes(7, -50.0)
    assert lucky.prunes(8, -50.0)


def test_a_seed_that_has_just_begun_does_not_prune_a_good_trial() -> None:
    """Early evaluations are those of a policy that has not learned, whatever the setting."""
    curve = dict(enumerate([-3.0, -3.0, -2.0, -1.0, 0.0, 0.0] * 2))
    known = [KnownTrial(trial.params, trial.status, 0.0, curve) for trial in history(6)]
    good = judge(known)
    assert not any(good.prunes(point, value + 1.0) for point, value in curve.items() if point < 6)
    assert not any(good.prunes(point, -3.5) for point in (6, 7))
    assert not any(good.prunes(point, value) for point, value in curve.items() if point > 7)


def test_a_seed_with_one_score_is_compared() -> None:
    """Such as by fitted Q evaluation, which does not have a curve."""
    objective = Objective("fqe", "mean", interval=0, last_step=60)
    known = [
        KnownTrial(trial.params, trial.status, 0.0, dict.fromkeys(range(3), 0.0))
        for trial in history(6)
    ]
    params = {"x": 0.0, "rate": 0.001, "count": 3, "sizes": None}
    bad = PruningJudge(SPACE, objective, known, params, pruner="median")
    assert not bad.prunes(0, -1.0)
    assert bad.prunes(1, -1.0)


def test_nothing_is_pruned_without_a_pruner() -> None:
    assert not any(judge(history(9), "none").prunes(point, -1e9) for point in range(6))


def test_halving_keeps_the_best_third() -> None:
    known = history(9)
    values = [-100.0, *sorted(trial.value or 0.0 for trial in known)]
    pruned = []
    for value in (values[0], values[-1]):
        found = judge(known, "halving")
        pruned.append(any(found.prunes(point, value - 5 + point) for point in range(6)))
    assert pruned == [True, False]


def test_pruned_trials_count_in_halving() -> None:
    """How far a trial came is replayed, since nothing of Optuna is stored."""
    known = history(9)
    better = [
        KnownTrial(trial.params, TrialStatus.PRUNED, None, {0: 9.0, 1: 9.0, 2: 9.0})
        for trial in known
    ]
    found = judge(better, "halving")
    assert any(found.prunes(point, 1.0) for point in range(6))
    alone = judge([], "halving")
    assert not any(alone.prunes(point, 1.0) for point in range(6))


# --- Importances ----------------------------------------------------------------------------


def test_the_important_key_is_found() -> None:
    found = importances(SPACE, history(40))
    assert found is not None
    assert set(found) == set(SPACE.dimensions)
    assert sum(found.values()) == pytest.approx(1)
    assert max(found, key=lambda key: found[key]) == "x"


def test_few_trials_have_no_importances() -> None:
    assert importances(SPACE, history(9)) is None


def test_optuna_is_silent_and_its_settings_are_restored(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    optuna.logging.set_verbosity(logging.DEBUG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = history(12)
        ask(known, 12)
        importances(SPACE, known)
    assert capfd.readouterr().err == ""
    assert optuna.logging.get_verbosity() == logging.DEBUG
    optuna.logging.set_verbosity(logging.WARNING)
