"""Convolutional networks: encoders of images, followed by a perceptron.

The encoder of each image ends with a linear layer. Its features, the other entries of the
observation and, in a critic, the actions are the inputs of the perceptron. The members of an
ensemble share the encoders and have separate perceptrons.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.activations import ACTIVATIONS
from rl_training.models.inputs import InputLayout, scaled_planes
from rl_training.models.kernels.products import linear
from rl_training.models.mlp import MLPTrunk, named_layer, named_norm, norm_pairs, normalized
from rl_training.models.network import State, Trunk
from rl_training.models.network_config import CNNConfig, ConvLayer, MLPConfig, Sizes
from rl_training.observations import Entry

Shape = tuple[int, ...]
NATURE: tuple[ConvLayer, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel size and stride of each layer (Nature 518, 529, 2015)."""
GRID: tuple[ConvLayer, ...] = ((16, 3, 1),)
"""A single layer for small grids, as in MinAtar (arXiv 1903.03176)."""
IMPALA = (16, 32, 32)
"""Filters of the blocks of IMPALA's residual network (arXiv 1802.01561)."""
NATURE_SIDE = 36
"""Smallest height and width of an image for the layers of `NATURE`."""
FEATURES = {"nature": 512, "impala": 256, "grid": 128, "custom": 128}
"""Default number of features."""


class Encoder(ABC):
    """Convolutions that map planes ``[B, channels, height, width]`` to maps of features.

    Parameters are in the order of `shapes`: weights ``[out, in, kernel, kernel]`` and biases.
    """

    shapes: list[Shape]
    outputs: int
    """Number of values of the last maps."""
    activations: int
    """Number of values that are kept for the backward pass."""

    @abstractmethod
    def __call__(self, x: Tensor, params: Sequence[Tensor]) -> Tensor:
        """Return the maps."""


class PlainEncoder(Encoder):
    """Convolutions without padding, each followed by an activation."""

    def __init__(self, image: Entry, layers: Sequence[ConvLayer], activation: str) -> None:
        self.strides = [stride for _, _, stride in layers]
        self.activation = ACTIVATIONS[activation]
        self.shapes, self.activations = [], 0
        channels, sides = image.planes.depth, [image.planes.height, image.planes.width]
        for filters, kernel, stride in layers:
            self.shapes += [(filters, channels, kernel, kernel), (filters,)]
            sides = [(side - kernel) // stride + 1 for side in sides]
            if min(sides) < 1:
                raise ConfigError(_too_small(image, layers))
            channels = filters
            self.activations += filters * math.prod(sides)
        self.outputs = channels * math.prod(sides)

    def __call__(self, x: Tensor, params: Sequence[Tensor]) -> Tensor:
        """Return the maps."""
        pairs = zip(params[0::2], params[1::2], self.strides, strict=True)
        for weight, bias, stride in pairs:
            x = self.activation(F.conv2d(x, weight, bias, stride=stride))
        return x


def _too_small(image: Entry, layers: Sequence[ConvLayer]) -> str:
    planes = image.planes
    name = "nature" if tuple(layers) == NATURE else f"custom with layers {list(map(list, layers))}"
    return (
        f"The encoder {name} is too large for images of {planes.height}×{planes.width} pixels: use "
        "encoder: grid, encoder: impala or other layers."
    )


class ResidualEncoder(Encoder):
    """IMPALA's network: blocks of a convolution, a maximum over 3×3 and two residual units."""

    def __init__(self, image: Entry) -> None:
        self.shapes, self.activations = [], 0
        channels, sides = image.planes.depth, [image.planes.height, image.planes.width]
        for filters in IMPALA:
            self.shapes += [(filters, channels, 3, 3), (filters,)]
            self.shapes += 4 * [(filters, filters, 3, 3), (filters,)]
            self.activations += filters * math.prod(sides)
            sides = [(side + 1) // 2 for side in sides]
            self.activations += 5 * filters * math.prod(sides)
            channels = filters
        self.outputs = channels * math.prod(sides)

    def __call__(self, x: Tensor, params: Sequence[Tensor]) -> Tensor:
        """Return the maps."""
        layers = iter(zip(params[0::2], params[1::2], strict=True))

        def convolved(x: Tensor) -> Tensor:
            weight, bias = next(layers)
            return F.conv2d(x, weight, bias, padding=1)

        for _ in IMPALA:
            x = F.max_pool2d(convolved(x), 3, stride=2, padding=1)
            for _ in range(2):
                x = x + convolved(torch.relu(convolved(torch.relu(x))))
        return torch.relu(x)


def make_encoder(options: CNNConfig, image: Entry) -> tuple[Encoder, int]:
    """Return the encoder of an image and its number of features."""
    kind = options.encoder
    if kind == "auto":
        side = min(image.planes.height, image.planes.width)
        kind = "nature" if side >= NATURE_SIDE else "grid"
    features = options.features or FEATURES[kind]
    if kind == "impala":
        return ResidualEncoder(image), features
    layers = {"nature": NATURE, "grid": GRID, "custom": options.layers}[kind]
    return PlainEncoder(image, layers, options.activation), features


class CNNTrunk(Trunk):
    """Encoders of the images, and a perceptron over their features and all other inputs."""

    def __init__(self, sizes: Sizes, options: CNNConfig, entries: Sequence[Entry]) -> None:
        self.layout = InputLayout(tuple(entries))
        rest = sizes.inputs - self.layout.obs_dim
        if rest > 0 and not options.hidden_sizes:
            raise ConfigError(
                "hidden_sizes = []: the network of a critic needs at least one hidden layer, which "
                "combines images and actions."
            )
        made = [make_encoder(options, image) for image in self.layout.images]
        self.encoders = [encoder for encoder, _ in made]
        self.features = [features for _, features in made]
        self.activation = ACTIVATIONS[options.activation]
        self.layer_norm = bool(options.layer_norm)
        self.orthogonal = options.initialization == "orthogonal"
        self.parts = [self._encoder_shapes(*pair) for pair in made]
        self.num_shared = sum(map(len, self.parts))
        vectors = self.layout.obs_dim - sum(image.width for image in self.layout.images)
        inputs = sum(self.features) + vectors + rest
        head = MLPConfig.model_construct(
            hidden_sizes=options.hidden_sizes,
            activation=options.activation,
            layer_norm=options.layer_norm,
        )
        self.members = sizes.ensemble
        self.head = MLPTrunk(sizes._replace(inputs=inputs), head)
        self.shapes = [*(shape for part in self.parts for shape in part), *self.head.shapes]
        shared = sum(encoder.activations for encoder in self.encoders) + sum(self.features)
        self.activations = shared + self.head.activations

    def _encoder_shapes(self, encoder: Encoder, features: int) -> list[Shape]:
        norm = [(features,), (features,)] if self.layer_norm else []
        return [*encoder.shapes, (encoder.outputs, features), (features,), *norm]

    def initialize(
        self, params: list[Tensor], generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Initialize like PyTorch, uniform in ±1/√fan_in, or with orthogonal weights."""
        shared = params[: self.num_shared]
        for part in self._split(shared):
            weights = part[:-2] if self.layer_norm else part
            for weight, bias in zip(weights[0::2], weights[1::2], strict=True):
                self._initialize_layer(weight, bias, generator)
            if self.layer_norm:
                part[-2].fill_(1.0)
                part[-1].zero_()
        return self.head.initialize(params[self.num_shared :], generator)

    def _initialize_layer(
        self, weight: Tensor, bias: Tensor, generator: torch.Generator | None
    ) -> None:
        is_linear = weight.dim() == 2
        fan_in = weight.shape[0] if is_linear else weight[0].numel()
        if not self.orthogonal:
            for tensor in (weight, bias):
                tensor.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
            return
        units = weight.t() if is_linear else weight.flatten(1)
        drawn = torch.empty_like(units, memory_format=torch.contiguous_format)
        units.copy_(nn.init.orthogonal_(drawn, gain=math.sqrt(2.0), generator=generator))
        bias.zero_()

    def _split(self, shared: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return the parameters of each encoder."""
        parts, start = [], 0
        for part in self.parts:
            parts.append(list(shared[start : start + len(part)]))
            start += len(part)
        return parts

    def unit_weights(self, params: list[Tensor]) -> list[Tensor]:
        """Return the weights of all layers; those of a filter count as one unit."""
        weights = [p for p in params[: self.num_shared] if p.dim() in (2, 4)]
        shared = [w.flatten(1).t() if w.dim() == 4 else w for w in weights]
        return [*shared, *self.head.unit_weights(params[self.num_shared :])]

    def norm_parameters(self, params: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Return scale and shift of each LayerNorm, of the features and of the head."""
        encoders = zip(self.encoders, self._split(params), strict=True)
        norms = [p for encoder, own in encoders for p in own[len(encoder.shapes) + 2 :]]
        return [*norm_pairs(norms), *self.head.norm_parameters(params[self.num_shared :])]

    def named_tensors(self, params: list[Tensor], state: State) -> dict[str, Tensor]:
        """Name the layers of the encoders, then those of the perceptron."""
        named: dict[str, Tensor] = {}
        pairs = zip(self.encoders, self._split(params), strict=True)
        for index, (encoder, own) in enumerate(pairs):
            place, last = f"encoders.{index}", len(encoder.shapes)
            for i in range(0, last, 2):
                layer = f"{place}.convolutions.{i // 2}"
                named |= {f"{layer}.weight": own[i], f"{layer}.bias": own[i + 1]}
            named |= named_layer(f"{place}.features", *own[last : last + 2])
            if self.layer_norm:
                named |= named_norm(f"{place}.norm", *own[last + 2 :])
        return named | self.head.named_tensors(params[self.num_shared :], state)

    def select(self, params: list[Tensor], choose: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return the parameters of some members, which share the encoders."""
        shared, own = params[: self.num_shared], params[self.num_shared :]
        return [*shared, *map(choose, own)]

    def embed(self, x: Tensor, params: list[Tensor]) -> Tensor:
        """Return the features of the images, followed by all other inputs, ``[B, inputs]``."""
        rows = x.reshape(-1, x.shape[-1])
        parts = [
            self._features(rows[:, image.place], image, encoder, own)
            for image, encoder, own in zip(
                self.layout.images, self.encoders, self._split(params), strict=True
            )
        ]
        vectors = [entry for entry in self.layout.entries if entry.kind != "image"]
        parts += [rows[:, entry.place] for entry in vectors]
        if x.shape[-1] > self.layout.obs_dim:
            parts.append(rows[:, self.layout.obs_dim :])
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return joined.view(*x.shape[:-1], -1)

    def _features(
        self, pixels: Tensor, image: Entry, encoder: Encoder, params: list[Tensor]
    ) -> Tensor:
        norm = params[len(encoder.shapes) + 2 :]
        weight, bias = params[len(encoder.shapes) : len(encoder.shapes) + 2]
        maps = encoder(scaled_planes(pixels, image), params[: len(encoder.shapes)])
        features = linear(maps.flatten(1), weight, bias)
        return self.activation(normalized(features, *norm) if norm else features)

    def evaluate(self, x: Tensor, params: list[Tensor], state: State, *, training: bool) -> Tensor:
        """Evaluate the perceptron on embedded inputs."""
        return self.head.evaluate(x, params[self.num_shared :], state, training=training)
