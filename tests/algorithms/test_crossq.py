"""CrossQ against a reference written from the paper in float64 NumPy (tests/reference)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import resume, train
from rl_training.algorithms.crossq import CrossQAlgorithm, CrossQConfig, crossq_loss
from rl_training.envs import EnvConfig, describe_env
from rl_training.errors import ConfigError
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
from tests.reference import crossq as reference
from tests.reference import normalized
from tests.structured_envs import PIXELS

WIDTHS, CRITIC_WIDTHS = (16, 12), (14, 10)
LIMITS: Any = {"renorm_r_max": 1.3, "renorm_d_max": 0.4, "renorm_warmup": 2, "momentum": 0.2}
RULES = normalized.Rules(momentum=0.2, eps=1e-3, unbiased=False, limits=(1.3, 0.4), warmup=2)
HYPER: Any = {"gamma": 0.99, "lr": RATE, "rules": RULES, "target_entropy": -float(ACT)}


def make_learner(**changes: Any) -> CrossQAlgorithm:
    """Return a learner in float64 whose scales and shifts differ from 1 and 0."""
    settings: Any = {
        "hidden_sizes": WIDTHS,
        "critic_hidden_sizes": CRITIC_WIDTHS,
        "learning_rate": RATE,
        "networks": {"all": LIMITS},
        **changes,
    }
    learner = CrossQAlgorithm.build(SPEC, CrossQConfig(**settings), seed=3).double()
    generator = torch.Generator().manual_seed(8)
    for network in (learner.model.actor, learner.model.critic):
        with torch.no_grad():
            network.flat.add_(0.1 * torch.randn(network.flat.shape, generator=generator))
    return learner


def layers(network: Network, flat: torch.Tensor | None = None) -> list[Any]:
    """Return the members of a network in the reference's layout."""
    views = [v.detach().numpy() for v in network.views(network.flat if flat is None else flat)]
    count, found = len(views) // 4, []
    for i in range(network.trunk.members or 1):
        own = [v if network.trunk.members is None else v[i] for v in views]
        kinds = {"weights": own[: 2 * count : 2], "biases": own[1 : 2 * count : 2]}
        kinds |= {"scales": own[2 * count :: 2], "shifts": own[2 * count + 1 :: 2]}
        found.append(
            {k: v if k == "weights" else [x.reshape(-1) for x in v] for k, v in kinds.items()}
        )
    return found


def initial_state(learner: CrossQAlgorithm) -> reference.State:
    def parts(network: Network, widths: list[int]) -> list[reference.Normalized]:
        fresh = normalized.fresh_running(widths)
        return [reference.with_statistics(net, fresh) for net in layers(network)]

    return {
        "actor": parts(learner.model.actor, [OBS, *WIDTHS])[0],
        "critics": parts(learner.model.critic, [OBS + ACT, *CRITIC_WIDTHS]),
        "log_alpha": np.zeros(()),
        "log_alpha_adam": {"m": np.zeros(()), "v": np.zeros(()), "t": 0},
        "updates": 0,
    }


@pytest.mark.parametrize("delay", [1, 3])
def test_updates_equal_the_reference(delay: int) -> None:
    """Seven updates start renormalization and cross the policy delay several times."""
    learner = make_learner(policy_delay=delay)
    model, state = learner.model, initial_state(learner)
    hyper: Any = {**HYPER, "policy_delay": delay}
    for step in range(7):
        batch, noise = make_batch(step), make_noise(learner, 100 + step)
        ours = learner.update(batch, noise, learner.due(step))
        state, theirs = reference.full_update(state, reference_batch(batch), arrays(noise), hyper)
        assert_same_metrics(ours, theirs)
    assert_same_network(layers(model.actor), [state["actor"]["net"]])
    assert_same_network(layers(model.critic), [critic["net"] for critic in state["critics"]])
    for network, parts in ((model.actor, [state["actor"]]), (model.critic, state["critics"])):
        for i, part in enumerate(parts):
            for name, values in (("mean", "means"), ("variance", "variances")):
                running: Any = part["running"]
                found = network.state[f"running_{name}"].reshape(len(parts), -1)[i]
                np.testing.assert_allclose(found, np.concatenate(running[values]), **TOLERANCE)
            assert network.state["batches"].flatten()[i] == part["running"]["seen"]
    assert learner.log_alpha is not None
    np.testing.assert_allclose(learner.log_alpha.item(), state["log_alpha"], **TOLERANCE)


def helper_losses(learner: CrossQAlgorithm, batch: Any, noise: Any) -> Any:
    return crossq_loss(
        learner.model,
        batch,
        noise,
        alpha=learner.alpha,
        log_alpha=learner.log_alpha,
        target_entropy=learner.target_entropy,
    )


def test_loss_helper_equals_the_stages_at_frozen_parameters() -> None:
    batch, learner, frozen = make_batch(), make_learner(), make_learner()
    noise = make_noise(learner)
    losses = helper_losses(learner, batch, noise)
    freeze(frozen)
    metrics = frozen.update(batch, noise, frozenset({"actor"}))
    assert set(losses) == {"loss/critic", "loss/actor", "loss/temperature"}
    for name, value in losses.items():
        torch.testing.assert_close(metrics[name], value.detach(), rtol=0, atol=0)


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


def test_acting_and_held_out_losses_do_not_change_the_state() -> None:
    learner = make_learner()
    learner.update(make_batch(), make_noise(learner), frozenset({"actor"}))
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    learner.held_out_losses(make_batch(1), make_noise(learner))
    alone = learner.act(make_batch(1).obs[:1], deterministic=True)
    together = learner.act(make_batch(1).obs, deterministic=True)[:1]
    torch.testing.assert_close(alone, together)  # no statistics of the batch
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())


def test_traced_updates_equal_eager_ones() -> None:
    assert_trace_is_the_update(make_learner())


def test_prioritized_batches_weight_the_rows_and_report_errors() -> None:
    learner, batch = make_learner(), make_batch()
    noise, weights = make_noise(learner), torch.rand(32, dtype=torch.float64)
    plain = learner.critic_stage(batch, noise).terms
    same = make_learner().critic_stage(batch._replace(extra={"weights": weights}), noise).terms
    assert "sample/td_error" not in plain.metrics
    assert same.metrics["sample/td_error"].shape == (32,)
    assert same.loss < plain.loss


def test_resumes_bit_for_bit(small_config: Callable[..., Any]) -> None:
    config = small_config(algo="crossq")
    whole = train(config)
    with pytest.raises(CrashError):
        train(config, callbacks=[CrashAt(97)])
    assert_same_run(whole, resume(f"{whole.run_dir}_2"))


def test_defaults_are_the_papers() -> None:
    learner = CrossQAlgorithm.build(SPEC)
    trunks = learner.config.trunks()
    assert {trunk.trunk for trunk in trunks.values()} == {"batch_norm"}
    sizes = {name: trunk.option("hidden_sizes") for name, trunk in trunks.items()}
    assert sizes == {"actor": (256, 256), "critic": (2048, 2048)}
    assert learner.intervals == {"actor": 3}
    assert not any("target" in name for name in learner.state_dict())
    betas = {key: learner.optimizer(key).betas for key in ("actor", "critic", "temperature")}
    assert betas == {"actor": (0.5, 0.999), "critic": (0.5, 0.999), "temperature": (0.9, 0.999)}
    assert {learner.optimizer(key).base_learning_rate for key in betas} == {1e-3}


def test_optimizers_in_the_config_override_the_defaults() -> None:
    optimizers: Any = {"critic": {"betas": (0.9, 0.99)}}
    learner = CrossQAlgorithm.build(SPEC, CrossQConfig(optimizers=optimizers, hidden_sizes=(8,)))
    assert learner.optimizer("critic").betas == (0.9, 0.99)
    assert learner.optimizer("actor").betas == (0.5, 0.999)


def test_networks_for_images_have_layer_norm() -> None:
    spec = describe_env(PIXELS, EnvConfig())
    trunks = CrossQConfig().trunks(spec)
    assert {trunk.trunk for trunk in trunks.values()} == {"cnn"}
    assert all(trunk.option("layer_norm") for trunk in trunks.values())
    with pytest.raises(ConfigError, match="'batch_norm' cannot read images"):
        CrossQConfig(networks={"all": {"trunk": "batch_norm", "momentum": 0.1}}).trunks(spec)


@pytest.mark.parametrize(
    ("field", "value"), [("policy_delay", 0), ("critic_hidden_sizes", ()), ("num_critics", 0)]
)
def test_bad_values_fail_at_construction(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        CrossQConfig(**{field: value})
