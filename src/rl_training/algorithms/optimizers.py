"""Adam on a flat vector, with the options of the config key `optimizers`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rl_training.models.kernels import use_kernels
from rl_training.models.network import Network
from rl_training.precision import widest_float

if TYPE_CHECKING:
    from typing_extensions import Self


def flush_tiny(values: Tensor, limit: float) -> None:
    """Set values within ``limit`` of 0 to 0, in place; NaN is kept.

    The gradient of a dead unit is 0, so Adam's moments shrink until they are denormal and stay
    denormal. Many CPUs take a hundred times longer for a product with a denormal number.
    """
    torch.hardshrink(values, limit, out=values)


def clip_norm(gradient: Tensor, max_norm: float) -> Tensor:
    """Return ``gradient``, scaled down to a Euclidean norm of at most ``max_norm``.

    The last axis is a flat vector; along leading axes, each vector is clipped separately.
    """
    norm = gradient.square().sum(-1, keepdim=True).sqrt()
    return gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)


def scale_to_unit_norm(weights: Tensor) -> None:
    """Scale each unit's incoming weights to norm 1, in place; ``[..., fan_in, units]``."""
    weights.div_(weights.square().sum(-2, keepdim=True).sqrt().clamp_min(1e-12))


def scale_norms(norms: tuple[Tensor, ...]) -> None:
    """Scale a normalization's parameters ``[..., d]`` jointly to norm √d, in place."""
    squares = torch.cat(norms, dim=-1).square().sum(-1, keepdim=True)
    factor = norms[0].shape[-1] ** 0.5 * (squares + 1e-8).rsqrt()
    for part in norms:
        part.mul_(factor)


def project_unit_rows(network: Network, flat: Tensor) -> None:
    """Scale each unit's incoming weights to norm 1, in place."""
    for weights in network.unit_weights(flat):
        scale_to_unit_norm(weights)


def project_rows_and_norms(network: Network, flat: Tensor) -> None:
    """Scale the parameters of each normalization to norm √d as well, in place (FlashSAC)."""
    project_unit_rows(network, flat)
    for norms in network.norm_parameters(flat):
        scale_norms(norms)


PROJECTIONS: dict[str, Callable[[Network, Tensor], None]] = {
    "unit_rows": project_unit_rows,
    "unit_rows_and_norms": project_rows_and_norms,
}
"""Projections of a network's flat vector by name."""


def network_of(learner: nn.Module, parameter: Tensor) -> Network | None:
    """Return the network of ``learner`` whose flat vector is ``parameter``, or None."""
    networks = (module for module in learner.modules() if isinstance(module, Network))
    return next((network for network in networks if network.flat is parameter), None)


class FlatAdam(nn.Module):
    """Adam (arXiv 1412.6980) on a flat vector.

    Moments, step count and learning rate are buffers. They are saved and restored in place like
    any other tensor, and a captured graph uses a new learning rate without being recaptured.

    Args:
        parameter: The vector that `step` updates.
        learning_rate: Base learning rate; schedules scale it.
        weight_decay: Coupled weight decay, an L2 term in the gradient.
        betas: Decay rates of the two moments.
        eps: Added to the root of the second moment.
        decoupled_weight_decay: Decoupled weight decay of AdamW (arXiv 1711.05101).
        max_norm: Euclidean norm that gradients are clipped to.
        project: Called with the vector after each step, to project it in place.
        decay_steps: Steps of this optimizer over which a cosine decays the learning rate.
        decay_final: Fraction of the learning rate after the decay.
    """

    moment1: Tensor
    moment2: Tensor
    steps: Tensor
    learning_rate: Tensor

    def __init__(
        self,
        parameter: Tensor,
        learning_rate: float,
        weight_decay: float = 0.0,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decoupled_weight_decay: float = 0.0,
        max_norm: float | None = None,
        project: Callable[[Tensor], None] | None = None,
        decay_steps: int | None = None,
        decay_final: float = 0.0,
    ) -> None:
        super().__init__()
        self.base_learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.betas = betas
        self.eps = eps
        self.decoupled_weight_decay = decoupled_weight_decay
        self.max_norm = max_norm
        self.project = project
        self.decay_steps = decay_steps
        self.decay_final = decay_final
        self.register_buffer("moment1", torch.zeros_like(parameter, requires_grad=False))
        self.register_buffer("moment2", torch.zeros_like(parameter, requires_grad=False))
        self.register_buffer("steps", torch.zeros((), dtype=torch.float32))
        self.register_buffer("learning_rate", torch.tensor(learning_rate, dtype=torch.float32))

    @torch.no_grad()
    def step(self, parameter: Tensor, gradient: Tensor) -> None:
        """Take one step with ``gradient``; on the CPU, PyTorch's fused kernel computes it.

        Runs on a GPU use compiled updates. Eager updates on a GPU serve as a reference for them
        and use the same formula.
        """
        rate = self._decayed_rate()
        self.steps.add_(1)
        if self.max_norm is not None:
            gradient = clip_norm(gradient, self.max_norm)
        if use_kernels(parameter):
            self._fused_step(parameter, gradient, rate)
        else:
            self._plain_step(parameter, gradient, rate)
        if not parameter.is_cuda:
            flush_tiny(self.moment1, 1e-30)
            flush_tiny(self.moment2, 1e-30)
            if (
                self.weight_decay or self.decoupled_weight_decay
            ):  # weight decay shrinks dead units too
                flush_tiny(parameter, 1e-20)
        if self.project is not None:
            self.project(parameter)

    def _decayed_rate(self) -> Tensor:
        """Return the learning rate of the next step, computed on the device."""
        if self.decay_steps is None:
            return self.learning_rate
        steps = self.steps.to(widest_float(self.steps.device))
        progress = (steps / self.decay_steps).clamp_max(1.0)
        shape = 0.5 * (1.0 + (math.pi * progress).cos())
        factor = self.decay_final + (1.0 - self.decay_final) * shape
        return (self.learning_rate * factor).to(self.learning_rate.dtype)

    def _fused_step(self, parameter: Tensor, gradient: Tensor, rate: Tensor) -> None:
        step, weight_decay = torch._fused_adam_, self.weight_decay
        if self.decoupled_weight_decay:
            gradient = self._with_weight_decay(parameter, gradient)
            step, weight_decay = torch._fused_adamw_, self.decoupled_weight_decay
        step(
            [parameter],
            [gradient],
            [self.moment1],
            [self.moment2],
            [],
            [self.steps],
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def _with_weight_decay(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient with coupled weight decay added."""
        return gradient + self.weight_decay * parameter if self.weight_decay else gradient

    def _plain_step(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        """Take the step with separate operations, which a compiler fuses into one loop."""
        beta1, beta2 = self.betas
        gradient = self._with_weight_decay(parameter, gradient)
        if self.decoupled_weight_decay:
            rate = learning_rate.to(widest_float(parameter.device))
            kept = 1.0 - rate * self.decoupled_weight_decay
            parameter.mul_(kept.to(parameter.dtype))
        self.moment1.lerp_(gradient, 1.0 - beta1)
        self.moment2.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        steps = self.steps.to(widest_float(parameter.device))
        # A compiler stores what `as_strided` views, so the loop over the elements reads the two
        # factors instead of computing their powers for every element.
        factors = learning_rate / (1.0 - beta1**steps), (1.0 - beta2**steps).sqrt()
        rate, root = torch.stack(factors).to(parameter.dtype).as_strided((2,), (1,)).unbind()
        parameter.sub_(rate * self.moment1 / (self.moment2.sqrt() / root + self.eps))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast the module; the counters stay in float32, as the kernels require."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.steps = self.steps.float()
        self.learning_rate = self.learning_rate.float()
        return self

    def scale_learning_rate(self, factor: float) -> None:
        """Set the learning rate to a fraction of its base value, in place."""
        self.learning_rate.fill_(self.base_learning_rate * factor)
