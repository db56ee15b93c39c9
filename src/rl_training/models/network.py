"""A network: one flat parameter vector, state in buffers, and a trunk that says how to use them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rl_training.models.kernels import use_kernels
from rl_training.models.kernels.products import MLPFunction, split_views

MAX_KEPT_VIEWS = 4

State = Mapping[str, Tensor]
"""A network's buffers by name: statistics and counters. Most networks have none."""


class Trunk(ABC):
    """A function of inputs, parameters and state, which it does not own: a `Network` does.

    A trunk computes features from the inputs and the outputs from the features by one last linear
    layer. What the outputs mean (a distribution, Q-values, quantiles) is the network's business.
    Of a stack, every parameter and every tensor of the state has the members as its first axis.
    """

    shapes: Sequence[tuple[int, ...]]
    """Shapes of the parameters, in the order of the flat vector."""
    activations: int
    """Numbers that a row of inputs leaves for the backward pass, of all members together."""
    fused: bool = False
    """Whether it is a plain ReLU perceptron, which has kernels of its own on the CPU."""

    @abstractmethod
    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Draw the first parameters in place, and return the first state."""

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """The weights by which units multiply their inputs, as views ``[..., fan_in, units]``.

        The projection of an optimizer scales them in place. Biases and norms are not among them. A
        trunk that does not override this cannot be projected.
        """
        return []

    @abstractmethod
    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Outputs ``[B, out]``, or ``[members, B, out]`` where the parameters are a stack.

        In training mode it may write to ``state``, in place.
        """


class FlatModule(nn.Module):
    """A network whose parameters are one leaf vector; its layers are views of one `split`.

    The backward of the split is one concatenation, so an optimizer step and a Polyak update are one
    kernel each (docs/decisions/0001-flat-parameters.md).
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.shapes = tuple(shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.flat = nn.Parameter(torch.empty(sum(self.sizes)))
        self._kept_views: dict[int, list[Tensor]] = {}

    def views(self, flat: Tensor) -> list[Tensor]:
        """The layers' tensors inside ``flat``; leading axes (a population) are kept."""
        return split_views(flat, self.sizes, self.shapes)

    def kept_views(self, flat: Tensor) -> list[Tensor]:
        """Views of ``flat`` without its gradient, made once for as long as it stays in place.

        They alias the vector, which is only ever written in place, and keep its memory from being
        used for anything else.
        """
        address = flat.data_ptr()
        kept = self._kept_views.get(address)
        if kept is None:
            if len(self._kept_views) >= MAX_KEPT_VIEWS:
                self._kept_views.clear()
            kept = self._kept_views[address] = self.views(flat.detach())
        return kept


class Network(FlatModule):
    """A trunk with its parameters and its state.

    Inputs are ``[B, in]``; outputs are ``[B, out]``, or ``[members, B, out]`` for a stack.

    A network is in training mode while gradients of the parameters that it is evaluated with are
    recorded: in the stage that moves them. A target network, a critic whose parameters are detached
    in an actor's loss, and everything under `torch.no_grad` (acting, held-out losses, a target's
    action) are in evaluation mode. `in_mode` overrides this.
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
        """The buffers that belong to the trunk."""
        return {name: getattr(self, name) for name in self._state_names}

    def unit_weights(self, flat: Tensor) -> list[Tensor]:
        """The trunk's unit weights inside ``flat``."""
        return self.trunk.unit_weights(self.views(flat))

    @contextmanager
    def in_mode(self, *, training: bool) -> Iterator[None]:
        """Inside, the network is in this mode, whatever gradients are recorded."""
        before, self._forced_mode = self._forced_mode, training
        try:
            yield
        finally:
            self._forced_mode = before

    def is_training(self, vector: Tensor) -> bool:
        """Whether evaluating ``vector`` now happens in training mode."""
        if self._forced_mode is not None:
            return self._forced_mode
        return self.training and vector.requires_grad and torch.is_grad_enabled()

    def forward(
        self, x: Tensor, flat: Tensor | None = None, *, prefix: Tensor | None = None
    ) -> Tensor:
        """Evaluate with the module's own parameters, or with those in ``flat``.

        ``prefix`` stands before ``x`` in the inputs and gets no gradient.
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
        """The same, one operation at a time: for a second derivative, a compiler, a GPU."""
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
        """The trunk on given parameters, and with other state than its own where it is given."""
        if prefix is not None:
            x = torch.cat((prefix, x), dim=-1)
        own = self.state if state is None else state
        return self.trunk.evaluate(x, params, own, training=training)
