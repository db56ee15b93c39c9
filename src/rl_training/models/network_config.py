"""Network options: the trunk and its keys.

This module does not import torch, so configs can be read and checked without it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, PrivateAttr, model_validator

from rl_training.config_model import ConfigModel, Trait, validated
from rl_training.errors import ConfigError, nearest
from rl_training.observations import Entry
from rl_training.text import shown

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Self

    from rl_training.models.network import Trunk

# Upper bounds are far above practical values; they catch typos before memory is allocated.
Width = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
Widths = Annotated[tuple[Width, ...], Field(min_length=1, max_length=64), Trait.NETWORK_SIZE]
Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "mish", "tanh"]
ConvLayer = tuple[Width, Annotated[int, Field(gt=0, le=64)], Annotated[int, Field(gt=0, le=64)]]
"""Filters, kernel size and stride of a convolution."""


class Sizes(NamedTuple):
    """Sizes of a network, which depend on its role."""

    inputs: int
    outputs: int
    ensemble: int | None = None
    """Number of members of a stack; None for a single network."""
    last_layer_bound: float | None = None
    """Range of the last layer's initial weights; None for the default range."""


class TrunkConfig(ConfigModel, ABC):
    """Base class of trunk options."""

    reads_images: ClassVar[bool] = False
    """Whether the trunk can use the pixels of images."""
    _entries: tuple[Entry, ...] = PrivateAttr(default=())

    trunk: str
    """Name of the trunk."""

    def with_entries(self, entries: tuple[Entry, ...]) -> Self:
        """Return the options of a network whose inputs start with these entries."""
        bound = self.model_copy()
        bound._entries = entries
        return bound

    def option(self, name: str) -> Any:
        """Return the value of an option, or None if the trunk does not have it."""
        return getattr(self, name, None)

    @abstractmethod
    def build(self, sizes: Sizes) -> Trunk:
        """Build the trunk for these sizes."""


class MLPConfig(TrunkConfig):
    """A multi-layer perceptron."""

    trunk: Literal["mlp"] = "mlp"
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    layer_norm: bool | Literal["after"] = False
    """Apply LayerNorm to every hidden layer: `true` before the activation, `after` after it."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of setting an output of a hidden layer to 0 in training."""

    def build(self, sizes: Sizes) -> Trunk:
        """Build the perceptron."""
        from rl_training.models.mlp import MLPTrunk

        return MLPTrunk(sizes, self)


class ResidualConfig(TrunkConfig):
    """Residual blocks with LayerNorm, as in SimBa (arXiv 2410.09754)."""

    trunk: Literal["residual"] = "residual"
    width: Width = 256
    """Width of the embedding and the blocks; the hidden layer of a block is four times as wide."""
    blocks: int = Field(default=2, gt=0, le=64)
    """Number of residual blocks."""
    activation: Activation = "relu"
    """Activation inside the blocks."""

    def build(self, sizes: Sizes) -> Trunk:
        """Build the residual network."""
        from rl_training.models.residual import ResidualTrunk

        return ResidualTrunk(sizes, self)


class BatchNormConfig(TrunkConfig):
    """A perceptron with batch normalization or renormalization, as in CrossQ."""

    trunk: Literal["batch_norm"] = "batch_norm"
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers, applied before their normalization."""
    momentum: float = Field(default=0.01, gt=0, le=1)
    """Weight of the newest batch in the running statistics."""
    eps: float = Field(default=1e-3, gt=0)
    """Constant added to variances for numerical stability."""
    renormalize: bool = True
    """Use batch renormalization, which corrects batch statistics toward the running ones."""
    renorm_warmup: int = Field(default=100_000, ge=0)
    """Training batches before renormalization starts."""
    renorm_r_max: float = Field(default=3.0, ge=1)
    """Largest correction factor of the standard deviation; its inverse is the smallest."""
    renorm_d_max: float = Field(default=5.0, ge=0)
    """Largest correction of the mean, in standard deviations."""

    def build(self, sizes: Sizes) -> Trunk:
        """Build the batch-normalized perceptron."""
        from rl_training.models.batch_norm import BatchNormTrunk

        return BatchNormTrunk(sizes, self)


class FlashConfig(TrunkConfig):
    """Residual blocks with BatchNorm and unit-norm weights, as in FlashSAC (arXiv 2604.04539)."""

    trunk: Literal["flash"] = "flash"
    width: Width = 256
    """Width of the embedding and the blocks; the hidden layer of a block is four times as wide."""
    blocks: int = Field(default=2, gt=0, le=64)
    """Number of residual blocks."""
    activation: Activation = "relu"
    """Activation inside the blocks."""
    normalization: Literal["batch", "layer", "none"] = "batch"
    """Normalization of the inputs and after each layer of a block: BatchNorm, LayerNorm or none."""
    momentum: float = Field(default=0.01, gt=0, le=1)
    """Weight of the newest batch in the running statistics of BatchNorm."""
    eps: float = Field(default=1e-5, gt=0)
    """Constant added to the variances of BatchNorm."""

    def build(self, sizes: Sizes) -> Trunk:
        """Build the network."""
        from rl_training.models.flash import FlashTrunk

        return FlashTrunk(sizes, self)


class CNNConfig(TrunkConfig):
    """Convolutions for images, followed by a perceptron."""

    reads_images: ClassVar[bool] = True

    trunk: Literal["cnn"] = "cnn"
    encoder: Literal["auto", "nature", "impala", "grid", "custom"] = "auto"
    """Convolutions of an image; `auto` is `nature` from 36×36 pixels on, and `grid` below."""
    layers: Annotated[tuple[ConvLayer, ...], Field(max_length=32), Trait.NETWORK_SIZE] = ()
    """Filters, kernel size and stride of each convolution of the encoder `custom`."""
    features: Width | None = None
    """Features of an image; null means 512 for `nature`, 256 for `impala` and 128 otherwise."""
    hidden_sizes: Annotated[tuple[Width, ...], Field(max_length=64), Trait.NETWORK_SIZE] = (
        256,
        256,
    )
    """Widths of the hidden layers after the features."""
    activation: Activation = "relu"
    """Activation of the convolutions, the features and the hidden layers; `impala` uses ReLU."""
    layer_norm: bool | Literal["after"] = False
    """Apply LayerNorm to the features, before their activation, and to every hidden layer."""
    initialization: Literal["default", "orthogonal"] = "default"
    """Initial weights of the encoder: PyTorch's default, or orthogonal with gain √2."""

    @model_validator(mode="after")
    def _has_layers(self) -> Self:
        if (self.encoder == "custom") != bool(self.layers):
            raise ValueError("layers and encoder=custom need each other: set both or none")
        return self

    def build(self, sizes: Sizes) -> Trunk:
        """Build the convolutional network."""
        from rl_training.models.cnn import CNNTrunk

        return CNNTrunk(sizes, self, self._entries)


def plain_mlp(hidden_sizes: Sequence[int], *, layer_norm: bool = False) -> MLPConfig:
    """Return the options of a ReLU perceptron; its widths are checked when it is built."""
    return MLPConfig.model_construct(hidden_sizes=tuple(hidden_sizes), layer_norm=layer_norm)


TRUNKS: dict[str, type[TrunkConfig]] = {
    "mlp": MLPConfig,
    "residual": ResidualConfig,
    "batch_norm": BatchNormConfig,
    "flash": FlashConfig,
    "cnn": CNNConfig,
}
"""Built-in trunks by name."""


# --- User-defined networks -------------------------------------------------------

_FACTORIES: dict[str, Callable[..., nn.Module]] = {}
OBSERVATIONS = "observations"
"""Parameter of a factory that receives the layout of its inputs."""


class CustomTrunkConfig(TrunkConfig):
    """A registered network and its options."""

    reads_images: ClassVar[bool] = True

    options: dict[str, Any]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of an observation, with which the inputs start."""
        return self._entries

    @property
    def takes_observations(self) -> bool:
        """Whether the factory has the parameter ``observations``."""
        return OBSERVATIONS in signature(self.factory).parameters

    @property
    def factory(self) -> Callable[..., nn.Module]:
        """The factory registered under this name."""
        return _FACTORIES[self.trunk]

    def option(self, name: str) -> Any:
        """Return the value of a given option."""
        return self.trunk if name == "trunk" else self.options.get(name)

    def build(self, sizes: Sizes) -> Trunk:
        """Build the trunk around the user's module."""
        from rl_training.models.own_network import CustomTrunk

        return CustomTrunk(sizes, self)


def register_network(name: str, factory: Callable[..., nn.Module]) -> None:
    """Register a custom network for this process, used with ``trunk: name`` in `networks`.

    Args:
        name: Lowercase letters, digits and underscores; not the name of a built-in trunk.
        factory: A class or function. ``factory(in_features, **options)`` returns an `nn.Module`
            that maps ``[B, in_features]`` to ``[B, features]``, for any number of features. The
            options are the network's other keys in the config. The run's seed determines the
            initial weights, however the module draws them. Images are pixels from 0 to 255 in the
            inputs; if the factory has a parameter ``observations``, it receives an
            `rl_training.models.inputs.InputLayout`, whose ``split`` returns the entries by name.

    Raises:
        ConfigError: If the name is invalid or taken, or the factory cannot be called.
    """
    if not (isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name)):
        raise ConfigError(
            f"name = {shown(name)}: should contain only lowercase letters, digits and underscores."
        )
    if name in TRUNKS:
        raise ConfigError(f"The trunk {name!r} already exists: choose another name.")
    is_instance = hasattr(factory, "named_parameters") and not isinstance(factory, type)
    if is_instance or not callable(factory):
        raise ConfigError(
            f"factory = {shown(factory)}: should be a class or a function that returns a module."
        )
    _FACTORIES[name] = factory


def _custom_trunk(name: str, options: dict[str, Any], where: str) -> CustomTrunkConfig:
    """Return the config of a registered network; raise an error for unknown or missing options."""
    parameters = list(signature(_FACTORIES[name]).parameters.values())[1:]
    parameters = [p for p in parameters if p.name != OBSERVATIONS]
    keys = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in options:
            if key not in keys:
                raise ConfigError(f"In {where}: Unknown key {shown(key)}{nearest(key, keys)}")
    missing = [p.name for p in parameters if p.default is p.empty and p.name in keys]
    for key in missing:
        if key not in options:
            raise ConfigError(f"In {where}: The key {key!r} is missing.")
    return CustomTrunkConfig(trunk=name, options=options)


def default_trunk(hidden_sizes: Sequence[int], entries: tuple[Entry, ...]) -> TrunkConfig:
    """Return the options of a ReLU network for an observation, with or without images."""
    if not any(entry.kind == "image" for entry in entries):
        return plain_mlp(hidden_sizes)
    return CNNConfig(hidden_sizes=tuple(hidden_sizes)).with_entries(entries)


def trunk_config(options: Mapping[str, Any], where: str) -> TrunkConfig:
    """Return the typed options of one network; ``where`` is their config key, for errors."""
    name = options.get("trunk", "mlp")
    if not isinstance(name, str):
        raise ConfigError(f"{where}.trunk = {shown(name)}: should be text.")
    if name in _FACTORIES:
        return _custom_trunk(name, {k: v for k, v in options.items() if k != "trunk"}, where)
    if name not in TRUNKS:
        raise ConfigError(
            f"{where}.trunk = {shown(name)} is unknown (a custom network needs register_network "
            "in Python, or --import MODULE on the command line)"
            f"{nearest(name, [*TRUNKS, *_FACTORIES])}"
        )
    try:
        return validated(TRUNKS[name], options)
    except ConfigError as error:
        raise ConfigError(f"In {where}: {error}") from None
