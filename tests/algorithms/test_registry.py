"""Registration of custom learners, and errors for incomplete ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rl_training import ConfigError, register_algorithm
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.bc import BCAlgorithm
from rl_training.algorithms.config import AlgorithmConfig, ValueConfig
from rl_training.algorithms.iql import IQLAlgorithm
from rl_training.algorithms.registry import REGISTRY, get_algorithm
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, SoftConfig
from rl_training.experiment.config import make_config

RUN: dict[str, Any] = {"algo": "mine", "env_id": "Pendulum-v1", "total_timesteps": 100}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    REGISTRY.pop("mine", None)


def learner(base: Any = SACAlgorithm, **declared: Any) -> type[Algorithm]:
    return type("Mine", (base,), {"name": "mine", "__module__": __name__, **declared})


def test_custom_learner_is_registered_by_name() -> None:
    first = learner(__doc__="The first line.\n\nAnd more.")
    register_algorithm(first)
    assert make_config(RUN).algo == "mine"
    entry = get_algorithm("mine")
    assert (entry.learner_class(), entry.summary) == (first, "The first line.")
    assert (entry.title, entry.paper) == ("Mine", "")
    register_algorithm(learner())  # a notebook cell that is run again
    assert get_algorithm("mine").learner_class() is not first


def test_unknown_name_suggests_registration() -> None:
    with pytest.raises(ConfigError, match=r"Unknown algorithm 'mine'.* needs register_algorithm"):
        make_config(RUN)


def test_mode_and_actions_default_to_the_class() -> None:
    register_algorithm(learner(IQLAlgorithm))
    assert get_algorithm("mine").mode == "offline"
    register_algorithm(
        learner(config_class=SoftConfig, mode="online"), mode="offline", actions="discrete"
    )
    assert (get_algorithm("mine").mode, get_algorithm("mine").actions) == ("offline", "discrete")


def test_custom_learner_may_have_a_title_and_a_summary() -> None:
    register_algorithm(learner(title="My SAC", summary="Mine.", paper="arXiv 0000.00000"))
    entry = get_algorithm("mine")
    assert (entry.title, entry.summary, entry.paper) == ("My SAC", "Mine.", "arXiv 0000.00000")


class Nameless(Algorithm):
    """A learner without any methods."""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (SACConfig, "is not a learner: derive a class from Algorithm."),
        ("sac", "'sac' is not a learner: derive a class from Algorithm."),
        (Nameless, "Nameless has no name: set one in the class, such as name = 'mine'."),
        (learner(name=3), "Mine.name = 3: should contain only lowercase letters, digits and"),
        (learner(name="My SAC"), "Mine.name = 'My SAC': should contain only lowercase letters"),
        (learner(name="../x"), "Mine.name = '../x': should contain only lowercase letters"),
        (
            learner(Algorithm, config_class=SACConfig),
            "Mine is abstract: define act_noise, choose_actions, noise and update.",
        ),
        (
            learner(Nameless, **dict.fromkeys(Algorithm.__abstractmethods__, SACAlgorithm.update)),
            "Mine has no config_class: set it to a subclass of AlgorithmConfig.",
        ),
        (learner(config_class={}), "Mine.config_class = {}: should be a subclass of AlgorithmConf"),
        (
            learner(config_class=ValueConfig),
            "Mine has mode 'online', so ValueConfig should derive from CollectionConfig.",
        ),
        (
            learner(mode="offline_to_online"),
            "Mine has mode 'offline_to_online', so SACConfig should derive from MixingConfig.",
        ),
        (
            learner(mode="offline"),
            "Mine has mode 'offline', so SACConfig should not derive from CollectionConfig, whose "
            "options would have no effect.",
        ),
        (
            learner(BCAlgorithm, mode="online", config_class=AlgorithmConfig),
            "Mine has mode 'online', so AlgorithmConfig should derive from CollectionConfig.",
        ),
        (
            learner(mode="onlin"),
            "Mine has mode = 'onlin', but should have 'online', 'offline' or 'offline_to_online'.",
        ),
        (
            learner(actions="any"),
            "actions = 'any', but should have 'continuous', 'discrete' or 'both'.",
        ),
        (
            learner(update=lambda self, batch, noise, *, phase=0: {}),
            "Mine.update has the parameters self, batch, noise and phase: define it as "
            "update(self, batch, noise), or as update(self, batch, noise, due) with intervals.",
        ),
        (learner(update=lambda self, batch: {}), "Mine.update has the parameters self and batch: "),
        (
            learner(period=2),
            "Mine.period is no longer used: declare intervals, such as {'actor': 2}, and define "
            "update(self, batch, noise, due).",
        ),
        (SACAlgorithm, "The algorithm 'sac' already exists: choose another name."),
        (learner(name="iql"), "The algorithm 'iql' already exists: choose another name."),
        (
            type("Nameless", (SACAlgorithm,), {}),
            "The algorithm 'sac' already exists: set name in Nameless.",
        ),
    ],
)
def test_incomplete_learner_raises(given: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        register_algorithm(given)
    assert "mine" not in REGISTRY
