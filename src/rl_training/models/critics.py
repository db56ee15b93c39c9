"""Ensembles of action-value networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.kernels import use_kernels
from rl_training.models.kernels.action_gradients import ActionGradients, action_gradients
from rl_training.models.kernels.products import linear, stacked_product
from rl_training.models.mlp import MLPTrunk
from rl_training.models.network import Network
from rl_training.models.network_config import Sizes, TrunkConfig, plain_mlp

CACHED_ROWS = 1_024
"""Chunk size of large evaluations on the CPU, the fastest of 512 to 8,192 with 256 units."""


class Critic(Network, ABC):
    """An ensemble of action-value networks."""

    @abstractmethod
    def q_values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q_i(s, a) of every critic, ``[num_critics, B]``."""


class EnsembleCritic(Critic):
    """``num_critics`` Q-networks, evaluated together with one batched product per layer.

    With ``num_quantiles`` > 1, each critic models the distribution of the return with that many
    quantiles, and its Q-value is their mean. The networks are ReLU perceptrons with
    ``hidden_sizes`` and ``layer_norm``, unless ``trunk`` is given.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        num_critics: int,
        *,
        num_quantiles: int = 1,
        layer_norm: bool = False,
        last_layer_bound: float | None = None,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        options = trunk or plain_mlp(hidden_sizes, layer_norm=layer_norm)
        sizes = Sizes(obs_dim + action_dim, num_quantiles, num_critics, last_layer_bound)
        super().__init__(options.build(sizes), generator)

    def quantiles(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Z_i(s, a) of every critic, ``[num_critics, B, num_quantiles]``."""
        values: Tensor = self(actions, flat, prefix=obs)
        return values

    def q_values(self, obs: Tensor, actions: Tensor, flat: Tensor | None = None) -> Tensor:
        """Return Q_i(s, a) of every critic, ``[num_critics, B]``."""
        return self.expected(self.quantiles(obs, actions, flat))

    def expected(self, outputs: Tensor) -> Tensor:
        """Return the Q-values of outputs ``[..., M]``: the mean of the distribution."""
        return outputs.squeeze(-1) if outputs.shape[-1] == 1 else outputs.mean(-1)

    def first_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q_1(s, a), ``[B]``, in evaluation mode, without gradient for its parameters."""
        first = self.trunk.select(self.views(self.flat.detach()), lambda view: view.select(0, 0))
        state = {name: value.select(0, 0) for name, value in self.state.items()}
        return self.expected(self.evaluate(actions, first, obs, state=state))

    def subset_q_values(
        self, obs: Tensor, actions: Tensor, flat: Tensor, members: Tensor
    ) -> Tensor:
        """Return Q-values of the critics ``members``, ``[len(members), B]``, in evaluation mode."""
        chosen = self.trunk.select(self.views(flat), lambda view: view.index_select(0, members))
        state = {name: value.index_select(0, members) for name, value in self.state.items()}
        return self.expected(self.evaluate(actions, chosen, obs, state=state))

    def sampled_q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return Q_i(s, a_k) for S actions ``[S, B, A]`` per state, ``[num_critics, S, B]``.

        In a perceptron, the observation's part of the first layer is the same for all actions, so
        it is computed once. The same applies to the encoders of images.
        """
        count, size, width = actions.shape
        trunk = self.trunk
        if not isinstance(trunk, MLPTrunk) or trunk.dropout or trunk.shapes[-1][-1] > 1:
            params = self.views(self.flat)
            embedded = trunk.embed(obs, params).expand(count, size, -1)
            rows = torch.cat((embedded, actions), dim=-1).flatten(0, 1)
            training = self.is_training(self.flat)
            every = trunk.evaluate(rows, params, self.state, training=training)
            return self.expected(every).view(-1, count, size)
        # On the CPU, in chunks whose activations stay in the cache from layer to layer.
        chunk = max(1, CACHED_ROWS // size) if obs.device.type == "cpu" else count
        if use_kernels(obs):
            repeated = obs.expand(count, size, -1)
            split = [torch.split(x.flatten(0, 1), chunk * size) for x in (repeated, actions)]
            pieces = [self.q_values(*piece) for piece in zip(*split, strict=True)]
            return torch.cat(pieces, dim=-1).view(-1, count, size)
        params = self.views(self.flat)
        widths = [obs.shape[-1], width]
        obs_weight, action_weight = torch.split_with_sizes(params[0], widths, dim=-2)
        base = linear(obs, obs_weight, params[1]).unsqueeze(-3)  # [N, 1, B, H]
        values = []
        for part in torch.split(actions, chunk):
            inputs = part.flatten(0, 1).expand(len(base), -1, -1)
            change = stacked_product(inputs, action_weight)  # [N, S·B, H]
            first = base + change.view(len(base), len(part), size, -1)
            above = trunk.evaluate_above(first.flatten(-3, -2), params, {}, training=False)
            values.append(above.view(-1, len(part), size))
        return torch.cat(values, dim=-2)

    def action_gradients(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q_i(s, a) ``[num_critics, B]`` and ∂Q_i/∂a ``[num_critics, B, A]``.

        With fixed ReLU masks, a perceptron is linear. Its gradient is a product of the masked
        weights, which is differentiable without a second backward pass.
        """
        if not self.trunk.fused or self.shapes[-1][-1] > 1:
            return self._plain_action_gradients(obs, actions)
        inputs = torch.cat((obs, actions), dim=-1)
        if use_kernels(obs):
            params = self.kept_views(self.flat)
            arguments = inputs, self.flat, params, self.sizes, actions.shape[-1]
            q, gradients = ActionGradients.apply(*arguments)  # type: ignore[no-untyped-call]
            return q, gradients
        return action_gradients(inputs, self.views(self.flat), actions.shape[-1])

    def _plain_action_gradients(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same values for any trunk, with a differentiable backward pass."""
        params = self.views(self.flat)
        training = self.is_training(self.flat)
        with torch.enable_grad():  # held-out losses are computed without gradients
            own = actions.detach().expand(len(params[-1]), -1, -1).contiguous().requires_grad_()
            embedded = self.trunk.embed(obs, params).expand(len(own), -1, -1)
            inputs = torch.cat((embedded, own), dim=-1)  # [N, B, in]
            q = self.expected(self.trunk.evaluate(inputs, params, self.state, training=training))
            (gradients,) = torch.autograd.grad(q.sum(), own, create_graph=True)
        return q, gradients


class BinnedCritic(EnsembleCritic):
    """Critics that model the return's distribution with probabilities of fixed bins.

    The ``num_bins`` bins are evenly spaced on ± ``bound``, as in C51 (arXiv 1707.06887). The
    Q-value is the mean of the distribution.
    """

    bins: Tensor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        num_critics: int,
        *,
        num_bins: int,
        bound: float,
        trunk: TrunkConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = obs_dim, action_dim, hidden_sizes, num_critics
        super().__init__(*sizes, num_quantiles=num_bins, trunk=trunk, generator=generator)
        # On the CPU, since experiment/memory.py builds learners on the meta device.
        bins = torch.linspace(-bound, bound, num_bins, device="cpu")
        self.register_buffer("bins", bins, persistent=False)

    def log_probs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the log-probability of each bin, ``[num_critics, B, num_bins]``."""
        logits: Tensor = self(actions, prefix=obs)
        return logits.log_softmax(-1)

    def target_probs(self, obs: Tensor, actions: Tensor, flat: Tensor, *, training: bool) -> Tensor:
        """Return the probabilities of target critics, ``[num_critics, B, num_bins]``.

        In training mode, normalizations use the statistics of the batch, and the running
        statistics, which belong to the online critics, do not change.
        """
        state = {name: value.clone() for name, value in self.state.items()}
        params = self.views(flat)
        logits = self.evaluate(actions, params, obs, state=state, training=training)
        return logits.softmax(-1)

    def expected(self, outputs: Tensor) -> Tensor:
        """Return the means of the distributions with these logits."""
        return self.mean(outputs.softmax(-1))

    def mean(self, probs: Tensor) -> Tensor:
        """Return the means of distributions ``[..., num_bins]``."""
        return (probs * self.bins).sum(-1)


class ValueNetwork(Network):
    """A network with one output, the value of a state."""

    def values(self, obs: Tensor) -> Tensor:
        """Return V(s), ``[B]``."""
        values: Tensor = self(obs)
        return values.squeeze(-1)
