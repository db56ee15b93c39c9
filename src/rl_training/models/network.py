"""Networks: a flat parameter vector, state in buffers, and a trunk that evaluates them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter

import torch
from torch import Tensor, nn

from rl_training.models.kernels import use_kernels
from rl_training.models.kernels.products import MLPFunction, split_views

MAX_KEPT_VIEWS = 4

State = Mapping[str, Tensor]
"""Buffers of a network by name, such as statistics and counters."""


class Trunk(ABC):
    """A function of inputs, parameters and state; the `Network` owns parameters and state.

    A trunk computes features from the inputs, then outputs with a last linear layer. The network
    defines the meaning of the outputs: a distribution, Q-values or quantiles. In a stack, the
    first axis of every parameter and state tensor is the member.
    """

    shapes: Sequence[tuple[int, ...]]
    """Shapes of the parameters, in the order of the flat vector."""
    activations: int
    """Numbers stored per input row for the backward pass, over all members."""
    members: int | None = None
    """Number of members of a stack; None for a single network."""
    fused: bool = False
    """Whether the trunk is a plain ReLU perceptron, which has specialized CPU kernels."""

    @abstractmethod
    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Initialize the parameters in place and return the initial state."""

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of the units as views ``[..., fan_in, units]``.

        The projection of an optimizer scales them in place; biases and norms are not included. A
        trunk that does not override this does not support projection.
        """
        return []

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift, or only the scale, of each normalization, as views."""
        return []

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Return the tensors of one network or member as views, under the names of its layers.

        Names and layouts are those of `torch.nn`: the weight of a linear layer is ``[out, in]``.
        ``state`` may be empty, since target networks share it. A trunk that does not override this
        numbers its parameters.
        """
        return {f"params.{i}": param for i, param in enumerate(params)} | dict(state)

    def select(self, params: list[Tensor], choose: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return the parameters of some members of a stack, which ``choose`` selects.

        A trunk whose members share parameters returns those unchanged.
        """
        return [choose(param) for param in params]

    def embed(self, x: Tensor, params: list[Tensor]) -> Tensor:
        """Return what `evaluate` needs of inputs ``[B, in]``: by default, the inputs themselves.

        What members share and what does not depend on the actions belongs here. A critic embeds
        the observation once and evaluates it with any number of actions.
        """
        return x

    @abstractmethod
    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Return outputs ``[B, out]``, or ``[members, B, out]`` for stacked parameters.

        ``x`` are inputs that `embed` has processed. In training mode, this may update ``state`` in
        place.
        """


class FlatModule(nn.Module):
    """A module whose parameters are one leaf vector; its layers are views from one `split`.

    The backward pass of the split is one concatenation, so an optimizer step and a Polyak update
    are one kernel each (docs/decisions/0001-flat-parameters.md).
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = tuple(shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.flat = nn.Parameter(torch.empty(sum(self.sizes)))
        self._kept_views: dict[int, list[Tensor]] = {}

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the layers' tensors as views of ``flat``; leading axes (a population) are kept."""
        return split_views(flat, self.sizes, self.shapes)

    def kept_views(self, flat: Tensor) -> list[Tensor]:
        """Return cached views of ``flat``, without gradient.

        The views alias the vector, which is only written in place, and keep its memory from being
        reused.
        """
        address = flat.data_ptr()
        kept = self._kept_views.get(address)
        if kept is None:
            if len(self._kept_views) >= MAX_KEPT_VIEWS:
                self._kept_views.clear()
            kept = self._kept_views[address] = self.views(flat.detach())
        return kept


class Network(FlatModule):
    """A trunk with parameters and state.

    Inputs are ``[B, in]``; outputs are ``[B, out]``, or ``[members, B, out]`` for a stack.

    A network is in training mode while gradients of the parameters that it is evaluated with are
    recorded, that is, in the stage that updates them. Target networks, critics with detached
    parameters in an actor loss, and everything under `torch.no_grad` (acting, held-out losses, the
    target's action) are in evaluation mode. `in_mode` overrides this.
    """

    def __init__(self, trunk: Trunk, generator: torch.Generator | None = None) -> None:
        super().__init__(trunk.shapes)
        self.trunk = trunk
        self._forced_mode: bool | None = None
        with torch.no_grad():
            state = trunk.initialize(self.views(self.flat), generator)
        self._state_names = tuple(state)
        for name, value in state.items():
            self.register_buffer(name, value)

    @property
    def state(self) -> dict[str, Tensor]:
        """The trunk's buffers."""
        return {name: getattr(self, name) for name in self._state_names}

    def vectors(self) -> dict[str, Network]:
        """Return the network whose layout each flat vector of this module has, by tensor name."""
        return {"flat": self}

    def unit_weights(self, flat: Tensor) -> list[Tensor]:
        """Return the trunk's unit weights as views of ``flat``."""
        return self.trunk.unit_weights(self.views(flat))

    def norm_parameters(self, flat: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the parameters of each of the trunk's normalizations as views of ``flat``."""
        return self.trunk.norm_parameters(self.views(flat))

    def named_tensors(self, flat: Tensor, state: State) -> dict[str, Tensor]:
        """Return views of ``flat`` and ``state`` by layer; in a stack, the member comes first."""
        params = self.views(flat)
        if self.trunk.members is None:
            return self.trunk.named_tensors(params, state)
        named: dict[str, Tensor] = {}
        for member in range(self.trunk.members):
            own = self.trunk.named_tensors(
                self.trunk.select(params, itemgetter(member)),
                {name: value[member] for name, value in state.items()},
            )
            named |= {f"{member}.{name}": tensor for name, tensor in own.items()}
        return named

    @contextmanager
    def in_mode(self, *, training: bool) -> Iterator[None]:
        """Force training or evaluation mode inside the context."""
        before, self._forced_mode = self._forced_mode, training
        try:
            yield
        finally:
            self._forced_mode = before

    def is_training(self, vector: Tensor) -> bool:
        """Return whether an evaluation with ``vector`` is in training mode."""
        if self._forced_mode is not None:
            return self._forced_mode
        return self.training and vector.requires_grad and torch.is_grad_enabled()

    def forward(
        self, x: Tensor, flat: Tensor | None = None, *, prefix: Tensor | None = None
    ) -> Tensor:
        """Evaluate with the module's parameters, or with those in ``flat``.

        ``prefix`` precedes ``x`` in the inputs and gets no gradient.
        """
        vector = self.flat if flat is None else flat
        if use_kernels(x) and x.dim() == 2 and vector.dim() == 1:
            if not torch.is_grad_enabled():
                params = self.kept_views(vector)
                return self.evaluate(x, params, prefix, training=self.is_training(vector))
            if self.trunk.fused:
                params = self.kept_views(vector)
                out: Tensor = MLPFunction.apply(x, prefix, vector, params, self.sizes)  # type: ignore[no-untyped-call]
                return out
        return self.plain_forward(x, flat, prefix=prefix)

    def plain_forward(
        self, x: Tensor, flat: Tensor | None = None, *, prefix: Tensor | None = None
    ) -> Tensor:
        """Evaluate with separate operations: for second derivatives, compilers and GPUs."""
        vector = self.flat if flat is None else flat
        return self.evaluate(x, self.views(vector), prefix, training=self.is_training(vector))

    def evaluate(
        self,
        x: Tensor,
        params: list[Tensor],
        prefix: Tensor | None = None,
        *,
        state: State | None = None,
        training: bool = False,
    ) -> Tensor:
        """Evaluate the trunk with given parameters and, optionally, another state."""
        if prefix is None:
            x = self.trunk.embed(x, params)
        else:
            x = torch.cat((self.trunk.embed(prefix, params), x), dim=-1)
        own = self.state if state is None else state
        return self.trunk.evaluate(x, params, own, training=training)
