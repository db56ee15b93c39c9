"""FlashSAC against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms.flash_sac import FlashSACAlgorithm, FlashSACConfig, flash_sac_loss
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.models import Network
from tests.comparing import CrashAt, CrashError, assert_same_run
from tests.golden import (
    ACT,
    OBS,
    RATE,
    SPEC,
    TOLERANCE,
    arrays,
    assert_same_metrics,
    assert_same_network,
    assert_trace_is_the_update,
    freeze,
    make_batch,
    make_noise,
    reached_by,
    reference_batch,
)
from tests.reference import flash_sac as reference
from tests.reference import normalized
from tests.reference.crossq import Normalized, with_statistics
from tests.reference.nn import copy_network

BLOCKS, WIDTH, CRITIC_WIDTH = 2, 6, 8
RULES = normalized.Rules(momentum=0.2, eps=1e-2, unbiased=True)
DECAY: Any = {"decay_steps": 5, "decay_final": 0.25}
HYPER: Any = {"gamma": 0.99, "tau": 0.1, "lr": RATE, "rules": RULES, **DECAY}


def make_learner(**changes: Any) -> FlashSACAlgorithm:
    """Return a learner in float64 with moved scales, biases and targets."""
    settings: Any = {
        "hidden_sizes": (WIDTH,) * BLOCKS,
        "critic_hidden_sizes": (CRITIC_WIDTH,) * BLOCKS,
        "learning_rate": RATE,
        "tau": 0.1,
        "num_bins": 11,
        "return_bound": 3.0,
        "initial_alpha": 0.3,
        "networks": {"all": {"momentum": 0.2, "eps": 1e-2}},
        **DECAY,
        **changes,
    }
    learner = FlashSACAlgorithm.build(SPEC, FlashSACConfig(**settings), seed=3).double()
    generator = torch.Generator().manual_seed(8)

    def move(tensor: torch.Tensor) -> None:
        tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))

    with torch.no_grad():
        for tensor in (learner.model.actor.flat, learner.model.critic.flat, learner.model.target):
            move(tensor)
    return learner


def layers(network: Network, flat: torch.Tensor | None = None) -> list[Any]:
    """Return the members of a network in the reference's layout."""
    views = [v.detach().numpy() for v in network.views(network.flat if flat is None else flat)]
    count, members = 2 * BLOCKS + 2, network.trunk.members
    found = []
    for i in range(members or 1):
        own = [v if members is None else v[i] for v in views]
        norms = [v.reshape(-1) for v in own[count:]]
        kinds = {"weights": own[:count], "biases": norms[:1], "rms": norms[-1:]}
        found.append(kinds | {"scales": norms[1:-1:2], "shifts": norms[2:-1:2]})
    return found


def initial_state(learner: FlashSACAlgorithm) -> reference.State:
    def parts(network: Network, inputs: int, width: int) -> list[Normalized]:
        fresh = normalized.fresh_running([inputs, *([4 * width, width] * BLOCKS)])
        return [with_statistics(net, fresh) for net in layers(network)]

    model = learner.model
    assert learner.log_alpha is not None
    return {
        "actor": parts(model.actor, OBS, WIDTH)[0],
        "critics": parts(model.critic, OBS + ACT, CRITIC_WIDTH),
        "targets": [copy_network(net) for net in layers(model.critic, model.target)],
        "log_alpha": np.array(learner.log_alpha.item()),
        "log_alpha_adam": {"m": np.zeros(()), "v": np.zeros(()), "t": 0},
        "updates": 0,
    }


@pytest.mark.parametrize("delay", [1, 2])
def test_updates_equal_the_reference(delay: int) -> None:
    """Seven updates: the critics' learning rate reaches the end of its decay, the actor's later."""
    learner = make_learner(policy_delay=delay)
    model, state = learner.model, initial_state(learner)
    hyper: Any = {**HYPER, "bins": model.critic.bins.numpy(), "policy_delay": delay}
    hyper["target_entropy"] = learner.target_entropy
    for step in range(7):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise, learner.due(step))
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), [state["actor"]["net"]])
    assert_same_network(layers(model.critic), [critic["net"] for critic in state["critics"]])
    assert_same_network(layers(model.critic, model.target), state["targets"])
    for network, parts in ((model.actor, [state["actor"]]), (model.critic, state["critics"])):
        for i, part in enumerate(parts):
            for name, values in (("mean", "means"), ("variance", "variances")):
                running: Any = part["running"]
                found = network.state[f"running_{name}"].reshape(len(parts), -1)[i]
                np.testing.assert_allclose(found, np.concatenate(running[values]), **TOLERANCE)
    assert learner.log_alpha is not None
    np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


def helper_losses(learner: FlashSACAlgorithm, batch: Any, noise: Any) -> Any:
    return flash_sac_loss(
        learner.model,
        batch,
        noise,
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )


def test_loss_helper_equals_the_stages_at_frozen_parameters() -> None:
    """The actor's statistics move before the critics' target uses them, in both."""
    batch, learner, frozen = make_batch(), make_learner(), make_learner()
    for each in (learner, frozen):  # so that a projection changes nothing
        for key, parameter in (("actor", each.model.actor), ("critic", each.model.critic)):
            project: Any = each.optimizer(key).project
            project(parameter.flat.detach())
    noise = make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    freeze(frozen)
    metrics = frozen.update(batch, noise, frozenset({"actor"}))
    assert set(losses) == {"loss/critic", "loss/actor", "loss/temperature"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), **TOLERANCE)


def test_each_loss_has_gradients_for_its_own_networks() -> None:
    learner = make_learner()
    model = learner.model
    losses = helper_losses(learner, make_batch(), make_noise(learner))
    assert learner.log_alpha is not None
    leaves = {"critic": model.critic.flat, "actor": model.actor.flat, "alpha": learner.log_alpha}
    reached = {name: reached_by(loss, leaves) for name, loss in losses.items()}
    assert reached == {
        "loss/critic": {"critic"},
        "loss/actor": {"actor"},
        "loss/temperature": {"alpha"},
    }


def test_actor_step_comes_first_and_its_noise_is_used_only_if_due() -> None:
    learner = make_learner()
    batch, noise = make_batch(), make_noise(learner)
    names = [list(s.parameters) for s in learner.stages(batch, noise, frozenset({"actor"}))]
    assert names == [["actor", "temperature"], ["critic"]]
    assert [list(s.parameters) for s in learner.stages(batch, noise, frozenset())] == [["critic"]]


def test_target_at_terminations_is_two_hot_at_the_reward() -> None:
    learner, batch = make_learner(), make_batch()
    ended = batch.terminations > 0
    target = learner.critic_target(batch, make_noise(learner))
    assert ended.any()
    torch.testing.assert_close(target.sum(-1), torch.ones(32, dtype=torch.float64))
    means = learner.model.critic.mean(target)
    torch.testing.assert_close(means[ended], batch.rewards[ended].clamp(-3, 3))
    assert ((target[ended] > 1e-9).sum(-1) <= 2).all()
    assert ((target[~ended] > 1e-9).sum(-1) > 2).any()


def test_acting_and_held_out_losses_do_not_change_the_state() -> None:
    learner = make_learner()
    learner.update(make_batch(), make_noise(learner), frozenset({"actor"}))
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    learner.held_out_losses(make_batch(1), make_noise(learner))
    alone = learner.act(make_batch(1).obs[:1], deterministic=True)
    torch.testing.assert_close(learner.act(make_batch(1).obs, deterministic=True)[:1], alone)
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())


def test_log_deviations_are_mapped_smoothly_into_the_bounds() -> None:
    learner = make_learner()
    with torch.no_grad():
        learner.model.actor.flat.mul_(50.0)
        _, log_std = learner.model.actor.distribution(make_batch().obs)
    assert log_std.min() >= -10.0
    assert log_std.max() <= 2.0
    assert log_std.max() - log_std.min() > 8.0


def test_traced_updates_equal_eager_ones() -> None:
    assert_trace_is_the_update(make_learner())


def test_weights_keep_unit_norms() -> None:
    learner = make_learner()
    for step in range(2):
        learner.update(make_batch(), make_noise(learner), learner.due(step))
    for network in (learner.model.actor, learner.model.critic):
        for weights in network.unit_weights(network.flat.detach()):
            norms = weights.square().sum(-2)
            torch.testing.assert_close(norms, torch.ones_like(norms))
        for parts in network.norm_parameters(network.flat.detach()):
            squares = torch.stack([part.square() for part in parts]).sum(0).sum(-1)
            wanted = torch.full_like(squares, parts[0].shape[-1])
            torch.testing.assert_close(squares, wanted, rtol=1e-6, atol=0)


def test_resumes_bit_for_bit(small_config: Callable[..., Any]) -> None:
    """Also the held exploration noise, in the middle of its time, and the reward scale."""
    config = small_config(algo="flash_sac")
    config["num_envs"] = 2
    whole = train(config)
    for step in (80, 98):
        with pytest.raises(CrashError):
            train(config, callbacks=[CrashAt(step)])
    for run in ("_2", "_3"):
        assert_same_run(whole, resume(f"{whole.run_dir}{run}"))


def test_defaults_are_the_authors() -> None:
    learner = FlashSACAlgorithm.build(SPEC)
    config = learner.config
    trunks: Any = config.trunks()
    assert {trunk.trunk for trunk in trunks.values()} == {"flash"}
    assert [(t.width, t.blocks, t.momentum, t.eps) for t in trunks.values()] == [
        (128, 2, 0.01, 1e-5),
        (256, 2, 0.01, 1e-5),
    ]
    assert (config.batch_size, config.learning_starts, config.tau) == (512, 10_000, 0.01)
    assert (config.normalize_rewards, config.return_bound, config.exploration_hold) == (True, 5, 16)
    assert learner.intervals == {"actor": 2}
    torch.testing.assert_close(learner.model.critic.bins, torch.linspace(-5, 5, 101))
    assert learner.alpha.item() == pytest.approx(0.01)
    assert learner.target_entropy == pytest.approx(
        0.5 * ACT * math.log(2 * math.pi * math.e * 0.15**2)
    )
    for key in ("actor", "critic", "temperature"):
        adam = learner.optimizer(key)
        assert (adam.base_learning_rate, adam.decay_steps, adam.decay_final) == (3e-4, 10**6, 0.5)
        assert (adam.project is None) == (key == "temperature")


def test_other_trunks_are_not_projected() -> None:
    config = FlashSACConfig(networks={"critic": {"trunk": "mlp"}}, critic_hidden_sizes=(8, 4))
    learner = FlashSACAlgorithm.build(SPEC, config)
    assert learner.optimizer("critic").project is None
    assert learner.optimizer("actor").project is not None
    assert learner.model.critic.views(learner.model.critic.flat)[0].shape[-1] == 8


def test_a_fixed_alpha_is_used() -> None:
    learner = make_learner(alpha=0.0)
    assert learner.log_alpha is None
    metrics = learner.update(make_batch(), make_noise(learner), frozenset({"actor"}))
    assert "loss/temperature" not in metrics
    assert metrics["policy/alpha"] == 0


def test_blocks_of_different_widths_raise_an_error() -> None:
    with pytest.raises(ConfigError, match=r"critic_hidden_sizes = \[8, 16\]: should contain equal"):
        TrainConfig.load("flash_sac/pendulum", ["critic_hidden_sizes=[8,16]"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy_delay", 0),
        ("num_bins", 1),
        ("return_bound", 0.0),
        ("exploration_hold", 0),
        ("target_deviation", 0.0),
        ("decay_steps", 0),
        ("decay_final", 1.5),
        ("initial_alpha", 0.0),
    ],
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        FlashSACConfig(**{field: value})
