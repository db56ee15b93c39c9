"""Trunks from a user's `nn.Module`, with flat parameters and buffers as state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from rl_training.errors import ConfigError
from rl_training.models.inputs import InputLayout
from rl_training.models.kernels.products import linear
from rl_training.models.mlp import initialize_layers, layer_shapes, named_layer
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import OBSERVATIONS, CustomTrunkConfig, Sizes
from rl_training.text import shorten, shown

PROBE_ROWS = 3


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global CPU generator inside the context and restore it afterward."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class CustomTrunk(Trunk):
    """The features of a user's module, followed by a linear layer.

    The flat vector holds the module's parameters in the order of `named_parameters`, then the
    output layer. Buffers and parameters without gradient are the state. Ensembles are evaluated
    with `torch.vmap`.
    """

    def __init__(self, sizes: Sizes, options: CustomTrunkConfig) -> None:
        self.options, self.inputs = options, sizes.inputs
        self.last_layer_bound = sizes.last_layer_bound
        self.members = sizes.ensemble
        try:
            with seeded(0), torch.device("cpu"):
                module = self._create_module()
                features = self._count_features(module)
        except ConfigError:
            raise
        except Exception as error:  # user code may raise anything
            raise ConfigError(
                f"The network {options.trunk!r} failed for {sizes.inputs} inputs with "
                f"{type(error).__name__}: {shorten(str(error), 200)}"
            ) from error
        lead = () if sizes.ensemble is None else (sizes.ensemble,)
        self.param_shapes = {
            name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad
        }
        head, _ = layer_shapes([features, sizes.outputs], sizes.ensemble)
        self.shapes = [*((*lead, *shape) for shape in self.param_shapes.values()), *head]
        self.state_names = [n for n in _tensors(module) if n not in self.param_shapes]
        self.activations = (sizes.ensemble or 1) * (features + sizes.outputs)
        self.module = module.to("meta")  # its tensors are never used

    def _create_module(self) -> nn.Module:
        options = dict(self.options.options)
        if self.options.takes_observations:
            options[OBSERVATIONS] = InputLayout(self.options.entries)
        module = self.options.factory(self.inputs, **options)
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"The factory of the network {self.options.trunk!r} returned {shown(module)}, but "
                "should return a torch.nn.Module."
            )
        return module

    def _count_features(self, module: nn.Module) -> int:
        """Return the number of features; reject invalid outputs and random numbers."""
        name = self.options.trunk
        before = torch.get_rng_state()
        for training in (True, False):
            out = module.train(training)(torch.zeros(PROBE_ROWS, self.inputs))
        is_matrix = isinstance(out, Tensor) and out.dim() == 2 and len(out) == PROBE_ROWS
        if not is_matrix or not out.is_floating_point():
            found = list(out.shape) if isinstance(out, Tensor) else shown(out)
            raise ConfigError(
                f"The network {name!r} returns {found} for inputs of the shape "
                f"{[PROBE_ROWS, self.inputs]}, but should return one row of floating-point "
                f"features for each row of inputs: [{PROBE_ROWS}, features]."
            )
        if not torch.equal(before, torch.get_rng_state()):
            raise ConfigError(
                f"The network {name!r} draws random numbers when it is evaluated, which a resumed "
                "run could not repeat. Remove dropout and noise."
            )
        return int(out.shape[1])

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Build the module once per member, with all random numbers from ``generator``."""
        made = []
        for _ in range(self.members or 1):
            seed = torch.randint(0, 2**62, (), generator=generator, device="cpu")
            with seeded(int(seed)), torch.device("cpu"):
                made.append(_tensors(self._create_module()))

        def gathered(name: str) -> Tensor:
            tensors = [tensors[name].detach() for tensors in made]
            return tensors[0].clone() if self.members is None else torch.stack(tensors)

        for param, name in zip(params, self.param_shapes, strict=False):
            param.copy_(gathered(name))
        initialize_layers(params[-2:], generator, self.last_layer_bound)
        return {_buffer_name(name): gathered(name) for name in self.state_names}

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Return the module's tensors under its own names, and the output layer."""
        own = dict(zip(self.param_shapes, params, strict=False))
        if state:
            own |= {name: state[_buffer_name(name)] for name in self.state_names}
        named = {f"features.{name}": tensor for name, tensor in own.items()}
        return named | named_layer("output", *params[-2:])

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate module and output layer; buffers that the module changes update the state."""
        *own, weight, bias = params
        values = [state[_buffer_name(name)] for name in self.state_names]
        values = [value.clone() for value in values] if training else values
        module = self.module.train(training)
        names = [*self.param_shapes, *self.state_names]

        def call(x: Tensor, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            given = dict(zip(names, tensors, strict=True))
            features: Tensor = functional_call(module, given, (x,))
            return features, [given[name] for name in self.state_names]

        if weight.dim() == 3:
            call = vmap(call, randomness="error")
            x = x.expand(len(weight), -1, -1) if x.dim() == 2 else x
        features, written = call(x, [*own, *values])
        if training:
            with torch.no_grad():
                for name, value in zip(self.state_names, written, strict=True):
                    state[_buffer_name(name)].copy_(value)
        return linear(features, weight, bias)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _buffer_name(name: str) -> str:
    """Return the buffer name of a module's tensor; buffer names cannot contain dots."""
    return f"own/{name.replace('.', '/')}"
