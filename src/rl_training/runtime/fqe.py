"""Fitted Q evaluation (arXiv 1903.08738): what a frozen policy is worth, told from recorded data.

The critics are a learner like any other, so that the engine draws its batches and runs, compiles
or records its updates; only there is no policy to improve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import Algorithm, polyak_update, td_target
from rl_training.algorithms.config import AlgorithmConfig, ValueConfig
from rl_training.data import TransitionDataset
from rl_training.errors import ConfigError
from rl_training.models import EnsembleCritic
from rl_training.runtime.engine import BLOCK, Engine
from rl_training.runtime.engine_choice import choose_engine
from rl_training.runtime.evaluation import Validation
from rl_training.runtime.seeding import Stream, derive_seed
from rl_training.types import Batch, Metrics, Noise, NoiseSpec

DEFAULT_GAMMA = 0.99
"""The discount for a policy whose algorithm has none, as behaviour cloning."""
DEFAULT_UPDATES = 20_000
HELD_OUT = 0.05
"""Share of the rows, in whole episodes, that no update sees."""
ROWS_AT_ONCE = 4096


class FQEConfig(ValueConfig):
    """How the critics are fitted."""

    tau: float = Field(default=0.02, gt=0, le=1, description="Polyak rate τ of the target critics.")
    num_critics: int = Field(default=2, gt=0, description="Critics, each fitted to its own target.")


def td_loss(q: Tensor, target: Tensor) -> Tensor:
    """Σ_i mean (Q_i(s, a) − y_i)²: each critic has a target of its own; both are ``[N, B]``."""
    return (q - target).square().mean(-1).sum(-1)


class FittedQ(Algorithm):
    """Critics of a frozen policy, on observations normalised as the policy's own.

    A value is `value_shift` + `value_scale` · network: the networks begin at the data's own returns
    and learn what differs, in whatever units rewards come.
    """

    name: ClassVar[str] = "fqe"
    config_class: ClassVar[type[AlgorithmConfig]] = FQEConfig
    config: FQEConfig
    target: Tensor
    value_shift: Tensor
    value_scale: Tensor

    def __init__(self, policy: Algorithm, config: FQEConfig, generator: torch.Generator) -> None:
        super().__init__(policy.spec, config, generator)
        self.policy = policy
        self.obs_shift.copy_(policy.obs_shift)
        self.obs_scale.copy_(policy.obs_scale)
        sizes = policy.spec.obs_dim, policy.spec.action_dim, config.hidden_sizes
        self.critic = EnsembleCritic(*sizes, config.num_critics, generator=generator)
        self.register_buffer("target", self.critic.flat.detach().clone())
        self.register_buffer("value_shift", torch.zeros(()))
        self.register_buffer("value_scale", torch.ones(()))
        self.add_optimizer("critic", self.critic.flat)

    def set_units(self, mean: float, deviation: float) -> None:
        """Where values begin and how far apart they are."""
        self.value_shift.fill_(mean)
        self.value_scale.fill_(deviation)

    def values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Q_i(s, a) in the units of the rewards, ``[N, B]``."""
        if self.spec.discrete:
            # One input for each action. (`one_hot` would look at the values on the host.)
            kinds = torch.arange(self.spec.action_dim, dtype=actions.dtype, device=actions.device)
            actions = (actions == kinds).to(obs.dtype)
        return self.value_shift + self.value_scale * self.critic.q_values(obs, actions, flat)

    def choose_actions(self, obs: Tensor, *, deterministic: bool, noise: Noise | None) -> Tensor:
        """Those of the policy."""
        return self.policy.choose_actions(obs, deterministic=deterministic, noise=noise)

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """That of the policy."""
        return self.policy.act_noise(batch_size)

    def noise(self, batch_size: int) -> NoiseSpec:
        """None: the policy is taken without exploration."""
        return {}

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Y_i = r + γ (1 − d) Q̄_i(s', π(s')), ``[N, B]``; π is the policy, whoever recorded."""
        actions = self.choose_actions(batch.next_obs, deterministic=True, noise=None)
        next_q = self.values(batch.next_obs, actions, self.target)
        return td_target(batch.rewards, batch.terminations, next_q, gamma=self.config.gamma)

    def update(self, batch: Batch, noise: Noise, *, phase: int = 0) -> Metrics:
        """Move every critic towards its target, then the targets."""
        q = self.values(batch.obs, batch.actions)
        loss = td_loss(q, self.targets(batch))
        self.minimise(loss / self.value_scale.square(), critic=self.critic.flat)
        polyak_update(self.target, self.critic.flat, self.config.tau)
        return {"loss/critic": loss.detach(), "q/mean": q.detach().mean((-2, -1))}

    @torch.no_grad()
    def held_out_losses(self, batch: Batch, noise: Noise) -> Metrics:
        """The loss itself: no copy is needed."""
        return {"loss/critic": td_loss(self.values(batch.obs, batch.actions), self.targets(batch))}

    @torch.no_grad()
    def policy_values(self, obs: Tensor) -> Tensor:
        """Q_i(s, π(s)) of every critic, ``[N, B]``."""
        parts = torch.split(obs, ROWS_AT_ONCE)
        actions = (self.choose_actions(part, deterministic=True, noise=None) for part in parts)
        found = [self.values(part, chosen) for part, chosen in zip(parts, actions, strict=True)]
        return torch.cat(found, dim=-1)


# --- The data's own returns -------------------------------------------------------


@dataclass(frozen=True)
class DataReturns:
    """Discounted returns of recorded episodes: as far as they go, nothing after a time limit."""

    of_episodes: npt.NDArray[np.float64]
    mean: float
    deviation: float
    """Moments of the returns from every row on."""


def discounted_returns(dataset: TransitionDataset, gamma: float) -> DataReturns:
    """The returns of the data as it was recorded."""
    bounds = dataset.episode_bounds()
    rewards = dataset.column("rewards").astype(np.float64)
    onward = np.empty_like(rewards)
    last_rows, total = set((bounds[1:] - 1).tolist()), 0.0
    for row in range(len(rewards) - 1, -1, -1):
        total = rewards[row] + (0.0 if row in last_rows else gamma * total)
        onward[row] = total
    mean, deviation = float(onward.mean()), float(onward.std())
    flat = deviation <= 1e-6 * max(1.0, abs(mean))  # all alike: there is no unit to be had
    return DataReturns(onward[bounds[:-1]], mean, 1.0 if flat else deviation)


# --- Evaluation -------------------------------------------------------------------


def fitted_q_evaluation(
    policy: Algorithm,
    dataset: TransitionDataset,
    *,
    config: FQEConfig,
    updates: int = DEFAULT_UPDATES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """The value of ``policy`` at the first observations of the dataset's episodes.

    ``dataset`` is as it was recorded: raw observations, untransformed rewards. It is used up: its
    rows are normalised in place, and some are held out.
    """
    if updates < 1:
        raise ConfigError(f"fqe_updates = {updates}: at least 1 is needed.")
    device = policy.obs_shift.device
    data = discounted_returns(dataset, config.gamma)
    scale = policy.obs_scale.double().cpu().numpy()
    dataset.normalise_observations(policy.obs_shift.double().cpu().numpy(), 1.0 / scale)
    dataset.rows = dataset.rows.to(device)
    starts = torch.from_numpy(dataset.episode_bounds()[:-1]).to(device)
    first_obs = dataset.batch(starts).obs
    held_out = dataset.hold_out(HELD_OUT, derive_seed(seed, Stream.VALIDATION))

    generator = torch.Generator().manual_seed(derive_seed(seed, Stream.NETWORKS))
    fitted = FittedQ(policy, config, generator).to(device)
    fitted.set_units(data.mean, data.deviation)
    mode = choose_engine("auto", device.type, updates)
    sampling = derive_seed(seed, Stream.SAMPLING)
    engine = Engine(fitted, dataset, seed=sampling, device=device, mode=mode)
    for done in range(0, updates, BLOCK):
        engine.run(min(BLOCK, updates - done))
        if progress is not None:
            progress(engine.updates, updates)
    engine.check_finite()

    values = fitted.policy_values(first_obs).double().cpu()  # [N, episodes]
    each = values.mean(-2)
    loss = Validation(held_out, seed=sampling).evaluate(fitted)["eval_loss"]
    of_critics = values.mean(-1)
    return {
        "fqe_value": float(each.mean()),
        "fqe_value_std": float(each.std(correction=0)),
        "fqe_critic_spread": float(of_critics.max() - of_critics.min()),
        "fqe_loss": loss / config.num_critics,
        "fqe_return_mean_data": float(data.of_episodes.mean()),
        "fqe_episodes": len(data.of_episodes),
        "fqe_updates": updates,
    }
