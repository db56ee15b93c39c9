"""The options of a network: which trunk, and the trunk's own keys.

Nothing here needs torch: a config is read and checked without it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from rl_training.config_model import ConfigModel, Trait, validated
from rl_training.errors import ConfigError, nearest
from rl_training.text import shown

if TYPE_CHECKING:
    from torch import nn

    from rl_training.models.network import Trunk

# Upper bounds are far above any use: typos are caught before memory is allocated.
Width = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
Widths = Annotated[tuple[Width, ...], Field(min_length=1, max_length=64), Trait.NETWORK_SIZE]
Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "mish", "tanh"]


class Sizes(NamedTuple):
    """What a network's use decides about it."""

    inputs: int
    outputs: int
    ensemble: int | None = None
    """Members of a stack; None for a single network."""
    last_layer_bound: float | None = None
    """Range of the last layer's first weights, if not the usual one."""


class TrunkConfig(ConfigModel, ABC):
    """Base of every trunk's options."""

    trunk: str
    """The trunk's name."""

    def option(self, name: str) -> Any:
        """The value of an option; None of one that the trunk does not have."""
        return getattr(self, name, None)

    @abstractmethod
    def build(self, sizes: Sizes) -> Trunk:
        """The trunk for these sizes."""


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
    """Probability with which an output of a hidden layer is zeroed in training."""

    def build(self, sizes: Sizes) -> Trunk:
        """The perceptron."""
        from rl_training.models.mlp import MLPTrunk

        return MLPTrunk(sizes, self)


class ResidualConfig(TrunkConfig):
    """Residual blocks with LayerNorm, as in SimBa (arXiv 2410.09754)."""

    trunk: Literal["residual"] = "residual"
    width: Width = 256
    """Width of the embedding and of the blocks; inside a block it is four times as wide."""
    blocks: int = Field(default=2, gt=0, le=64)
    """Number of residual blocks."""
    activation: Activation = "relu"
    """Activation inside the blocks."""

    def build(self, sizes: Sizes) -> Trunk:
        """The residual network."""
        from rl_training.models.residual import ResidualTrunk

        return ResidualTrunk(sizes, self)


class BatchNormConfig(TrunkConfig):
    """A perceptron with batch normalization or renormalization, as in CrossQ."""

    trunk: Literal["batch_norm"] = "batch_norm"
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers, before their normalization."""
    momentum: float = Field(default=0.01, gt=0, le=1)
    """Share of the newest batch in the running statistics."""
    eps: float = Field(default=1e-3, gt=0)
    """Added to variances."""
    renormalize: bool = True
    """Correct a batch's statistics towards the running ones: batch renormalization."""
    renorm_warmup: int = Field(default=100_000, ge=0)
    """Training batches before renormalization begins."""
    renorm_r_max: float = Field(default=3.0, ge=1)
    """Largest correction of the deviation, a factor; its inverse is the smallest."""
    renorm_d_max: float = Field(default=5.0, ge=0)
    """Largest correction of the mean, in deviations."""

    def build(self, sizes: Sizes) -> Trunk:
        """The normalized perceptron."""
        from rl_training.models.batch_norm import BatchNormTrunk

        return BatchNormTrunk(sizes, self)


def plain_mlp(hidden_sizes: Sequence[int], *, layer_norm: bool = False) -> MLPConfig:
    """A ReLU perceptron; its widths are checked where it is built."""
    return MLPConfig.model_construct(hidden_sizes=tuple(hidden_sizes), layer_norm=layer_norm)


TRUNKS: dict[str, type[TrunkConfig]] = {
    "mlp": MLPConfig,
    "residual": ResidualConfig,
    "batch_norm": BatchNormConfig,
}
"""The package's own trunks by name."""


# --- Networks of the user -------------------------------------------------------

_FACTORIES: dict[str, Callable[..., nn.Module]] = {}


class OwnTrunkConfig(TrunkConfig):
    """A registered network with options of its own."""

    options: dict[str, Any]

    @property
    def factory(self) -> Callable[..., nn.Module]:
        """What was registered by this name."""
        return _FACTORIES[self.trunk]

    def option(self, name: str) -> Any:
        """The value of an option that was given."""
        return self.trunk if name == "trunk" else self.options.get(name)

    def build(self, sizes: Sizes) -> Trunk:
        """The module on the flat vector."""
        from rl_training.models.own_network import OwnTrunk

        return OwnTrunk(sizes, self)


def register_network(name: str, factory: Callable[..., nn.Module]) -> None:
    """Make a network of your own known in this process: ``trunk: name`` in `networks`.

    Args:
        name: Lower-case letters, digits and underscores, not the name of a trunk of the package.
        factory: A class or function; ``factory(in_features, **options)`` returns an `nn.Module`
            from ``[B, in_features]`` to ``[B, features]``, any number of them. The options are the
            other keys of the network in the config. First weights are drawn from the run's
            generator, whatever the module uses to draw them.

    Raises:
        ConfigError: The name is taken or not a name, or the factory cannot be called.
    """
    if not (isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name)):
        raise ConfigError(
            f"name = {shown(name)}: should have only lower-case letters, digits and underscores."
        )
    if name in TRUNKS:
        raise ConfigError(f"There is a trunk {name!r} already: choose another name.")
    made_already = hasattr(factory, "named_parameters") and not isinstance(factory, type)
    if made_already or not callable(factory):
        raise ConfigError(
            f"factory = {shown(factory)}: should be a class or a function that returns a module."
        )
    _FACTORIES[name] = factory


def _own_trunk(name: str, options: dict[str, Any], where: str) -> OwnTrunkConfig:
    """The config of a registered network; options that its factory does not take are refused."""
    parameters = list(signature(_FACTORIES[name]).parameters.values())[1:]
    keys = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in options:
            if key not in keys:
                raise ConfigError(f"In {where}: Unknown key {shown(key)}{nearest(key, keys)}")
    missing = [p.name for p in parameters if p.default is p.empty and p.name in keys]
    for key in missing:
        if key not in options:
            raise ConfigError(f"In {where}: The key {key!r} is missing.")
    return OwnTrunkConfig(trunk=name, options=options)


def trunk_config(options: Mapping[str, Any], where: str) -> TrunkConfig:
    """The typed options of one network; ``where`` is the place of ``options``, for errors."""
    name = options.get("trunk", "mlp")
    if not isinstance(name, str):
        raise ConfigError(f"{where}.trunk = {shown(name)}: should be text.")
    if name in _FACTORIES:
        return _own_trunk(name, {k: v for k, v in options.items() if k != "trunk"}, where)
    if name not in TRUNKS:
        raise ConfigError(
            f"{where}.trunk = {shown(name)} is unknown (your own has to be registered first, with "
            "register_network; on the command line, --import its module)"
            f"{nearest(name, [*TRUNKS, *_FACTORIES])}"
        )
    try:
        return validated(TRUNKS[name], options)
    except ConfigError as error:
        raise ConfigError(f"In {where}: {error}") from None
