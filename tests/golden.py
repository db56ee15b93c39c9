"""Helpers of the golden tests: float64 inputs, and networks in the references' layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, draw_noise
from rl_training.models import Network, TanhMeanGaussianActor
from rl_training.models.dueling import DuelingTrunk
from rl_training.models.mlp import MLPTrunk
from rl_training.runtime.compilation import UpdateTracer, at_least_1d, state_tensors
from rl_training.types import Batch, EnvSpec
from tests.reference.nn import norm_keys

OBS, ACT, ROWS = 5, 3, 32
SPEC = EnvSpec(OBS, ACT, (-1.0,) * ACT, (1.0,) * ACT)
RATE = 2.0**-9  # exact in float32, the type of the learning rate
TOLERANCE: Any = {"rtol": 1e-9, "atol": 1e-10}
RATES: Any = {"gamma": 0.99, "tau": 0.1, "actor_lr": RATE, "critic_lr": RATE}
SOFT: Any = {
    **RATES,
    "alpha_lr": RATE,
    "target_entropy": -float(ACT),
    "temperature_form": "log_alpha",
}


def make_batch(seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    kind = torch.float64
    return Batch(
        obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        actions=torch.rand(ROWS, ACT, generator=g, dtype=kind) * 2 - 1,
        rewards=torch.randn(ROWS, generator=g, dtype=kind),
        next_obs=torch.randn(ROWS, OBS, generator=g, dtype=kind),
        terminations=(torch.rand(ROWS, generator=g, dtype=kind) < 0.3).double(),
    )


def make_noise(learner: Algorithm, seed: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return draw_noise(learner.noise(ROWS), generator, torch.float64)


def make_learner(kind: Any, spec: EnvSpec = SPEC, **changes: Any) -> Any:
    """Return a small learner in float64 whose targets differ from its networks."""
    settings = {"hidden_sizes": (16, 16), "learning_rate": RATE, "tau": 0.1, **changes}
    learner = kind.build(spec, kind.config_class(**settings), seed=3).double()
    generator = torch.Generator().manual_seed(4)
    for name, buffer in learner.model.named_buffers():
        if "target" in name:  # others are running statistics
            buffer.add_(0.02 * torch.randn(buffer.shape, generator=generator, dtype=buffer.dtype))
    return learner


def move_norms(critic: Any) -> None:
    """Move LayerNorm's scales and shifts away from 1 and 0."""
    generator = torch.Generator().manual_seed(8)
    for view in critic.views(critic.flat.detach())[2 * critic.trunk.num_layers :]:
        view.add_(0.3 * torch.randn(view.shape, generator=generator, dtype=view.dtype))


def freeze(learner: Algorithm) -> None:
    """Set all learning rates to 0; target networks still update."""
    for optimizer in learner.optimizers.values():
        optimizer.scale_learning_rate(0.0)  # type: ignore[operator]


def layers(network: Network, flat: torch.Tensor | None = None) -> Any:
    """Return a network's parameters in the references' layout: one network or a list of members."""
    views = network.views(network.flat if flat is None else flat)
    arrays = [view.detach().numpy() for view in views]
    trunk, streams = network.trunk, {}
    if isinstance(trunk, DuelingTrunk):
        *arrays, value, value_bias, advantage, advantage_bias = arrays
        streams = {"value": [value, value_bias], "advantage": [advantage, advantage_bias]}
        trunk = trunk.inner
    assert isinstance(trunk, MLPTrunk)
    split = 2 * trunk.num_layers
    kinds = {"weights": arrays[:split:2], "biases": arrays[1:split:2]}
    if trunk.layer_norm:
        scales, shifts = norm_keys(trunk.layer_norm == "after")
        kinds |= {scales: arrays[split::2], shifts: arrays[split + 1 :: 2]}
    if arrays[0].ndim == 2:
        return kinds | streams
    return [
        {
            kind: [x[i] if kind == "weights" else x[i, 0] for x in stacked]
            for kind, stacked in kinds.items()
        }
        for i in range(arrays[0].shape[0])
    ]


def reference_batch(batch: Batch) -> Any:
    names = ("observation", "action", "reward", "next_observation", "termination")
    return {name: tensor.numpy() for name, tensor in zip(names, batch[:5], strict=True)}


def arrays(noise: dict[str, torch.Tensor]) -> Any:
    return {key: value.numpy() for key, value in noise.items()}


def assert_same_network(ours: Any, theirs: Any) -> None:
    """Compare one network or a list of networks."""
    if isinstance(ours, list):
        for mine, expected in zip(ours, theirs, strict=True):
            assert_same_network(mine, expected)
        return
    assert set(ours) == set(theirs)
    for kind in ours:
        for mine, expected in zip(ours[kind], theirs[kind], strict=True):
            np.testing.assert_allclose(mine, expected, **TOLERANCE)


METRICS = {
    "q/target": "target_mean",
    "policy/entropy": "entropy",
    "policy/alpha": "alpha",
    "loss/temperature": "alpha_loss",
    "loss/multiplier": "alpha_prime_loss",
    "q/gap": "gap_mean",
    "q/multiplier": "alpha_prime",
}


def reference_name(metric: str) -> str:
    """Return the references' name of a metric: `loss/x` is `x_loss`, `q/x` is `q_x`."""
    group, _, name = metric.partition("/")
    return METRICS.get(metric) or (f"{name}_loss" if group == "loss" else f"{group}_{name}")


def assert_same_metrics(ours: Any, theirs: dict[str, float]) -> None:
    """Compare metrics by name; both sides must report the same ones."""
    assert {reference_name(name) for name in ours} == set(theirs)
    for name, value in ours.items():
        expected = theirs[reference_name(name)]
        np.testing.assert_allclose(float(value), expected, **TOLERANCE, err_msg=name)


def assert_trace_is_the_update(learner: Algorithm, batch: Batch | None = None) -> None:
    """Assert that the traced operations equal the update itself, for every combination due."""
    batch, noise = batch or make_batch(), make_noise(learner)
    tracer = UpdateTracer(learner, batch, noise)
    for due in learner.all_due():
        traced, state = tracer.trace(due), state_tensors(learner)
        written = [at_least_1d(tensor.detach().clone()) for tensor in state.values()]
        totals = torch.zeros(len(tracer.keys), dtype=torch.float64)
        with torch.no_grad():
            traced(*batch.tensors(), *noise.values(), totals, *written)
        metrics = learner.update(batch, noise, due)
        for (name, tensor), found in zip(state.items(), written, strict=True):
            ours, theirs = found.view(tensor.shape).numpy(), tensor.detach().numpy()
            np.testing.assert_allclose(ours, theirs, **TOLERANCE, err_msg=name)
        for name, total in zip(tracer.keys, totals, strict=True):
            expected = metrics.get(name, torch.zeros(())).double()
            torch.testing.assert_close(total, expected, **TOLERANCE)


# --- Offline: a Gaussian around a tanh mean, advantages -----------------------

METRICS |= {
    "loss/value": "value_loss",
    "v/mean": "v_mean",
    "advantage/mean": "advantage_mean",
    "advantage/weight": "weight_mean",
}


def gaussian_layers(actor: TanhMeanGaussianActor, flat: torch.Tensor | None = None) -> Any:
    """Return the actor's layers and its log σ, which follows them in the flat vector."""
    vector = actor.flat if flat is None else flat
    return layers(actor, vector) | {"log_std": [vector[actor.parts[0] :].detach().numpy()]}


def set_log_std(actor: TanhMeanGaussianActor, *values: float) -> None:
    """Set the log σ of each action dimension."""
    with torch.no_grad():
        actor.flat[actor.parts[0] :] = torch.tensor(values, dtype=actor.flat.dtype)


def reached_by(loss: torch.Tensor, leaves: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the names of the leaves that receive a gradient from a loss."""
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, retain_graph=True)
    return {key for key, grad in zip(leaves, found, strict=True) if grad is not None}


# --- Discrete actions -----------------------------------------------------------

DISCRETE = EnvSpec(OBS, 4, discrete=True)


def make_discrete_batch(seed: int = 0, *, masks: Sequence[str] = ()) -> Batch:
    """Return a batch with action indices, and with the named masks; recorded actions are legal."""
    batch, size = make_batch(seed), DISCRETE.action_dim
    g = torch.Generator().manual_seed(100 + seed)
    actions = torch.randint(size, (ROWS, 1), generator=g)
    fields = {}
    for name in masks:
        mask = torch.rand(ROWS, size, generator=g, dtype=torch.float64) < 0.5
        fields[name] = mask.double().scatter(-1, actions, 1.0)
    return batch._replace(actions=actions.double(), rewards=3 * batch.rewards, extra=fields)


def make_discrete_learner(kind: Any, **changes: Any) -> Any:
    """Return a small learner for discrete actions in float64, with targets of its own."""
    return make_learner(kind, DISCRETE, **changes)


def discrete_reference_batch(batch: Batch) -> Any:
    found = reference_batch(batch) | {"action": batch.actions[:, 0].numpy().astype(np.int64)}
    names = {"legal_actions": "legal", "next_legal_actions": "next_legal"}
    return found | {names[key]: value.numpy() for key, value in batch.extra.items()}
