"""Ask Optuna: which settings to try next, and whether to stop a trial early.

Both are pure functions of what is known: the outcomes of earlier trials, the settings of those that
are still running, and a seed. Each question builds an Optuna study in memory. So nothing depends on
when a trial ended, an interrupted tuning continues as if it had not been interrupted, and no state
of Optuna is ever read from a file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.errors import ConfigError
from rl_training.tuning.objective import Objective
from rl_training.tuning.space import Choices, Numbers, Params, Space
from rl_training.tuning.trials import TrialStatus

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import Trial as OptunaTrial

STUDY_NAME = "tuning"
STARTUP_TRIALS = 10
"""Number of random trials before the sampler learns from results."""
MIN_IMPORTANCE_TRIALS = 10
"""Number of complete trials below which importances are only noise."""
UNPRUNED_TRIALS = 5
"""Number of complete trials before the first one can be pruned."""
_RETRIES = 100
"""How many proposals are drawn to find one that is new and valid."""


@dataclass(frozen=True)
class KnownTrial:
    """A trial with its outcome."""

    params: Params
    status: TrialStatus
    value: float | None = None
    points: Mapping[int, float] = field(default_factory=dict)


def require_optuna() -> None:
    """Raise an error with the install line if Optuna is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ConfigError(
            "Tuning requires Optuna: install it with pip install 'rl-training[tune]'."
        ) from None


# --- Samplers and pruners -----------------------------------------------------------------


def _tpe(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    return TPESampler(
        seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True
    )


def _gaussian_process(seed: int) -> BaseSampler:
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)


def _random(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": _tpe,
    "gp": _gaussian_process,
    "random": _random,
}
"""Samplers without a state of their own: each proposal has a new one, with its own seed."""


def _first_third(objective: Objective) -> int:
    """Return the number of points of a seed at which it says too little to be compared."""
    return max(1, objective.per_run // 3)


def _median(objective: Objective) -> BasePruner:
    from optuna.pruners import MedianPruner

    warmup = _first_third(objective)
    return MedianPruner(n_startup_trials=UNPRUNED_TRIALS, n_warmup_steps=warmup)


def _halving(objective: Objective) -> BasePruner:
    from optuna.pruners import SuccessiveHalvingPruner

    return SuccessiveHalvingPruner(min_resource=_first_third(objective), reduction_factor=3)


PRUNERS: dict[str, Callable[[Objective], BasePruner] | None] = {
    "median": _median,
    "halving": _halving,
    "none": None,
}


# --- Studies in memory ----------------------------------------------------------------------


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna, which reports every trial and its experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return a space in the terms of Optuna."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, BaseDistribution] = {}
    for key, dimension in space.dimensions.items():
        if isinstance(dimension, Choices):
            found[key] = CategoricalDistribution(dimension.labels)
        elif dimension.is_integer:
            found[key] = IntDistribution(
                int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1)
            )
        else:
            found[key] = FloatDistribution(
                dimension.low, dimension.high, dimension.log, dimension.step
            )
    return found


def to_optuna(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial as Optuna stores them."""
    return {
        key: dimension.labels[dimension.values.index(params[key])]
        if isinstance(dimension, Choices)
        else params[key]
        for key, dimension in space.dimensions.items()
    }


def from_optuna(space: Space, values: Mapping[str, Any]) -> Params:
    """Return the settings that Optuna proposes, with few digits."""
    params: Params = {}
    for key, dimension in space.dimensions.items():
        if isinstance(dimension, Numbers):
            params[key] = dimension.tidy(values[key])
        else:
            params[key] = dimension.values[dimension.labels.index(values[key])]
    return params


def _study(
    space: Space,
    known: Sequence[KnownTrial],
    pending: Sequence[Params] = (),
    *,
    sampler: BaseSampler | None = None,
    pruner: BasePruner | None = None,
) -> Study:
    """Return a study in memory with these trials."""
    import optuna
    from optuna.trial import TrialState, create_trial

    study = optuna.create_study(
        study_name=STUDY_NAME,
        direction="maximize",
        sampler=sampler or _random(0),
        pruner=pruner or optuna.pruners.NopPruner(),
    )
    kinds = distributions(space)
    states = {TrialStatus.COMPLETE: TrialState.COMPLETE}
    for trial in known:
        study.add_trial(
            create_trial(
                # For the sampler, settings that fail are bad ones, like those that are pruned.
                state=states.get(trial.status, TrialState.PRUNED),
                value=trial.value if trial.status is TrialStatus.COMPLETE else None,
                params=to_optuna(space, trial.params),
                distributions=kinds,
                intermediate_values=dict(trial.points),
            )
        )
    for params in pending:
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=to_optuna(space, params),
                distributions=kinds,
            )
        )
    return study


# --- Proposing -------------------------------------------------------------------------------


def propose(
    space: Space,
    known: Sequence[KnownTrial],
    pending: Sequence[Params],
    *,
    sampler: str,
    seed: int,
    number: int,
    is_valid: Callable[[Params], bool],
) -> Params | None:
    """Return the settings of trial ``number``, or None if every setting has been tried.

    Args:
        space: What may vary.
        known: Earlier trials with their outcomes.
        pending: Settings of trials whose outcome is not known.
        sampler: Name of the sampler, a key of `SAMPLERS`.
        seed: Seed of the tuning.
        number: Number of the trial; each has its own random numbers.
        is_valid: Returns whether the config accepts settings.
    """
    tried = [trial.params for trial in known] + list(pending)
    if len(tried) >= space.size and _number_of_different(tried) >= space.size:
        return None
    with quiet():
        for attempt in range(_RETRIES):
            words = np.random.SeedSequence([seed, number, attempt]).generate_state(1)
            made = SAMPLERS[sampler if attempt < _RETRIES // 2 else "random"](int(words[0]))
            study = _study(space, known, pending, sampler=made)
            asked = study.ask(distributions(space))
            params = from_optuna(space, asked.params)
            if params not in tried and is_valid(params):
                return params
    if _number_of_different(tried) == 0 or not any(map(is_valid, tried)):
        raise ConfigError(
            f"None of {_RETRIES} settings of the space is valid for the config: use a smaller "
            "space."
        )
    return None


def _number_of_different(tried: Sequence[Params]) -> int:
    return len({repr(sorted(params.items())) for params in tried})


# --- Pruning ---------------------------------------------------------------------------------


class PruningJudge:
    """Decides whether a trial is stopped early, from its points and from earlier trials."""

    def __init__(
        self,
        space: Space,
        objective: Objective,
        known: Sequence[KnownTrial],
        params: Params,
        *,
        pruner: str,
    ) -> None:
        """Prepare to judge a trial with these settings; ``pruner`` is a key of `PRUNERS`."""
        self._space, self._params = space, params
        self._per_run = objective.per_run
        self._forgets = pruner == "median"
        self._warmup = min(_first_third(objective), objective.per_run - 1) if self._forgets else 0
        """Number of points at the beginning of each seed that are not compared."""
        self._trial: OptunaTrial | None = None
        self._seed = -1
        self._study: Study | None = None
        make = PRUNERS[pruner]
        if make is None:
            return
        with quiet():
            if pruner == "median":
                self._study = _study(space, known, pruner=make(objective))
            else:  # the pruner remembers how far each trial came
                self._study = _study(space, (), pruner=make(objective))
                for trial in known:
                    self._replay(self._study, trial)

    def prunes(self, point: int, value: float) -> bool:
        """Return whether the trial is stopped at a point; points are passed in order."""
        if self._study is None:
            return False
        seed, number = divmod(point, self._per_run)
        with quiet():
            if self._trial is None or (self._forgets and seed != self._seed):
                # The median rule compares the best value so far. A lucky first seed must not
                # protect the later ones, so each seed starts again.
                self._trial = _start(self._study, self._space, self._params)
                self._seed = seed
            self._trial.report(value, point)
            return number >= self._warmup and self._trial.should_prune()

    def _replay(self, study: Study, known: KnownTrial) -> None:
        trial = _start(study, self._space, known.params)
        for point, value in sorted(known.points.items()):
            trial.report(value, point)
            trial.should_prune()  # which records the value; whether it is true does not matter


def _start(study: Study, space: Space, params: Params) -> OptunaTrial:
    """Add a running trial with these settings to a study in memory."""
    study.enqueue_trial(to_optuna(space, params))
    return study.ask(distributions(space))


# --- Importance --------------------------------------------------------------------------------


def importances(space: Space, known: Sequence[KnownTrial]) -> dict[str, float] | None:
    """Return the share of each key in the differences between trials, or None if unknown.

    This is PED-ANOVA (https://arxiv.org/abs/2304.10255) of the trials that were not pruned.
    """
    complete = [trial for trial in known if trial.status is TrialStatus.COMPLETE]
    if len(complete) < MIN_IMPORTANCE_TRIALS:
        return None
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    with quiet():
        study = _study(space, complete)
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {key: float(value) for key, value in found.items()}
