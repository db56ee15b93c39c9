"""The `networks` key: options of single networks, and their relation to the flat keys."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.algorithms.registry import REGISTRY
from rl_training.config_model import validated
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.models.network_config import MLPConfig, TrunkConfig
from tests.golden import make_learner

LEARNERS = [name for name in REGISTRY if name != "her"]


def read(algo: str, **kwargs: Any) -> Any:
    return validated(REGISTRY[algo].config_class(), kwargs)


FLAT: dict[str, Any] = {"hidden_sizes": [8]}
WIDTHS: dict[str, dict[str, Any]] = {"flash_sac": {"width": 8}}
"""The option for the width of a network, other than `hidden_sizes`."""


def is_narrow(trunk: TrunkConfig) -> bool:
    """Return whether a network has one of these widths."""
    return trunk.option("hidden_sizes" if trunk.option("width") is None else "width") in (8, (8,))


@pytest.mark.parametrize("algo", LEARNERS)
def test_every_network_accepts_its_own_options(algo: str) -> None:
    names = read(algo).network_names
    for name in names:
        config = read(algo, networks={name: WIDTHS.get(algo, FLAT) | {"activation": "tanh"}})
        trunks: Any = config.trunks()
        assert trunks[name].activation == "tanh"
        assert [key for key in names if is_narrow(trunks[key])] == [name]
    both = read(algo, networks={"all": WIDTHS.get(algo, FLAT)}).trunks()
    assert all(is_narrow(trunk) for trunk in both.values())
    assert len(both) == len(names)


@pytest.mark.parametrize("algo", [name for name in LEARNERS if name not in ("bc", "dqn")])
def test_every_actor_critic_accepts_num_critics(algo: str) -> None:
    learner_class: Any = REGISTRY[algo].learner_class()
    networks = {"critic": WIDTHS.get(algo, FLAT)}
    learner = make_learner(learner_class, num_critics=3, networks=networks)
    assert learner.model.critic.views(learner.model.critic.flat)[0].shape[::2] == (3, 8)
    assert learner.model.actor.views(learner.model.actor.flat)[0].shape[-1] == 16


def test_network_overrides_all_and_all_overrides_the_flat_key() -> None:
    networks = {"all": {"activation": "gelu"}, "critic": {"hidden_sizes": [16]}}
    trunks = read("sac", hidden_sizes=[32], networks=networks).trunks()
    assert trunks == {
        "actor": MLPConfig(hidden_sizes=(32,), activation="gelu"),
        "critic": MLPConfig(hidden_sizes=(16,), activation="gelu"),
    }


def test_flat_keys_and_networks_are_equivalent() -> None:
    flat = read("rlpd", hidden_sizes=[8], layer_norm=False)
    nested = {"all": {"hidden_sizes": [8]}, "critic": {"layer_norm": False}}
    assert read("rlpd", networks=nested).trunks() == flat.trunks()
    assert read("rlpd", hidden_sizes=[8], networks=nested).trunks() == flat.trunks()
    assert read("rlpd").trunks()["critic"].option("layer_norm") is True
    assert read("rlpd").trunks()["actor"].option("layer_norm") is False


@pytest.mark.parametrize(
    ("algo", "kwargs", "message"),
    [
        (
            "sac",
            {"networks": {"critics": {}}},
            "Unknown name 'critics' in networks; did you mean 'critic'?",
        ),
        (
            "sac",
            {"networks": {"value": {}}},
            "Unknown name 'value' in networks",
        ),
        ("bc", {"networks": {"critic": {}}}, "Unknown name 'critic' in networks"),
        (
            "iql",
            {"networks": {"value": {"hidden_size": [8]}}},
            "In networks.value: Unknown key 'hidden_size'; did you mean 'hidden_sizes'?",
        ),
        (
            "sac",
            {"networks": {"actor": {"dropout": 1.0}}},
            r"In networks.actor: dropout = 1.0: should be less than 1.",
        ),
        (
            "sac",
            {"networks": {"actor": {"trunk": "mpl"}}},
            "networks.actor.trunk = 'mpl' is unknown",
        ),
        (
            "sac",
            {"networks": {"critic": {"layer_norm": "before"}}},
            "layer_norm = 'before': should be true or false or 'after'.",
        ),
        ("sac", {"networks": {"actor": 3}}, "networks.actor = 3: should be a mapping."),
        (
            "sac",
            {"hidden_sizes": [8], "networks": {"all": {"hidden_sizes": [16]}}},
            r"hidden_sizes = \[8\] has no effect",
        ),
        (
            "tqc",
            {"critic_hidden_sizes": [8], "networks": {"critic": {"hidden_sizes": [16]}}},
            "critic_hidden_sizes = \\[8\\] has no effect",
        ),
        (
            "rlpd",
            {"layer_norm": False, "networks": {"critic": {"layer_norm": True}}},
            "layer_norm = False has no effect",
        ),
        (
            "bc",
            {"networks": {"all": {"activation": "elu"}, "actor": {"activation": "tanh"}}},
            "networks.all.activation = 'elu' has no effect",
        ),
    ],
)
def test_options_without_effect_raise(algo: str, kwargs: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(algo, **kwargs)


def test_command_line_sets_a_single_option_and_the_resolved_config_loads() -> None:
    config = TrainConfig.load("td3/pendulum", ["networks.critic.layer_norm=true"])
    assert config.parts.algorithm.networks == {"critic": {"layer_norm": True}}  # type: ignore[attr-defined]
    again = TrainConfig(**config.resolved().to_dict())
    assert again.resolved().fingerprint() == config.resolved().fingerprint()
