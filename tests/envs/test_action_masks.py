"""Action masks from an environment: detection, checks and errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.envs import EnvConfig, examine_env
from rl_training.errors import ConfigError, EnvError
from rl_training.types import EnvSpec
from tests import masked_envs
from tests.masked_envs import ACTIONS, FAULTS, MASKED, START

masked_envs.register()

MESSAGES = {
    "missing": "step() returns an info without 'action_mask', but every reset and step should "
    "return one",
    "shape": f"step() returns an array of int8 of shape ({ACTIONS - 1},) for the action mask, but "
    f"should return an array of {ACTIONS} booleans or integers, one for each action",
    "type": f"step() returns an array of float64 of shape ({ACTIONS},) for the action mask, but "
    f"should return an array of {ACTIONS} booleans or integers, one for each action",
    "value": "step() returns an action mask with the value 2, but should return 1 for each legal "
    "action and 0 for the others",
    "text": "step() returns 'left' for the action mask, but should return an array of "
    f"{ACTIONS} booleans or integers, one for each action",
    "none": "step() returns an action mask without a legal action, but at least one is needed "
    "unless the episode has terminated",
}
ADVICE = "; set env_kwargs.action_masks=false to ignore the masks"


def test_masks_are_detected_and_can_be_switched_off() -> None:
    found = [examine_env(MASKED, EnvConfig(action_masks=use))[0] for use in (True, False)]
    assert [spec.action_masks for spec in found] == [True, False]
    assert not examine_env(MASKED, EnvConfig(masked=False))[0].action_masks
    assert not examine_env("CartPole-v1", EnvConfig())[0].action_masks
    assert str(found[0]).endswith("4 discrete actions, numbered from 3 with action masks")


def test_checked_step_takes_a_legal_action() -> None:
    """The environment raises an error for an illegal one."""
    for index in range(ACTIONS):
        assert examine_env(MASKED, EnvConfig(banned=index))[0].action_masks


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_mask_is_found_before_a_run(fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{MASKED}: {MESSAGES[fault]}{ADVICE}.")):
        examine_env(MASKED, EnvConfig(fault=fault, at=2))
    assert not examine_env(MASKED, EnvConfig(fault=fault, at=2, action_masks=False))[0].action_masks


def test_mask_of_the_first_observation_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"step\(\) returns 'action_mask' in its info, but"):
        examine_env("tests/LateMasks-v0", EnvConfig())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_wrong_mask_ends_the_run_with_its_step(small_config: Any, fault: str, kind: str) -> None:
    if kind == "async" and fault != "none":
        pytest.skip("the same check in another process")
    config = small_config(algo="dqn", env_id=MASKED, num_envs=2, eval_episodes=0)
    # The seventh call of each environment is its sixth step, after ten transitions.
    config["env_kwargs"] = {"fault": fault, "at": 7, "ends_at": 10**6, "vectorization": kind}
    name, text = re.escape(f"at step 11, {MASKED} "), re.escape(MESSAGES[fault] + ADVICE)
    with pytest.raises(EnvError, match=rf"{name}\(environment [01]\): {text}"):
        train(config)


def test_spec_of_an_old_checkpoint_has_no_masks() -> None:
    spec = EnvSpec(6, ACTIONS, discrete=True, action_start=START, action_masks=True)
    data = spec.to_dict()
    assert EnvSpec.from_dict(data) == spec
    del data["action_masks"]
    assert not EnvSpec.from_dict(data).action_masks
    with pytest.raises(ValueError, match="action_masks is not true or false"):
        EnvSpec.from_dict(data | {"action_masks": 1})
    assert spec.mask_width == ACTIONS
    assert np.array_equal(EnvSpec(3, 2).mask_width, 0)
