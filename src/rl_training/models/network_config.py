"""The options of a network: which trunk, and the trunk's own keys.

Nothing here needs torch: a config is read and checked without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rl_training.config_model import ConfigModel, Trait, validated
from rl_training.errors import ConfigError, nearest
from rl_training.text import shown

if TYPE_CHECKING:
    from rl_training.models.network import Trunk

# Upper bounds are far above any use: typos are caught before memory is allocated.
Width = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
Widths = Annotated[tuple[Width, ...], Field(min_length=1, max_length=64), Trait.NETWORK_SIZE]
Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "mish", "tanh"]


class TrunkConfig(ConfigModel):
    """Base of every trunk's options."""

    trunk: str
    """The trunk's name."""

    def option(self, name: str) -> Any:
        """The value of an option; None of one that the trunk does not have."""
        return getattr(self, name, None)

    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        ensemble: int | None = None,
        last_layer_bound: float | None = None,
    ) -> Trunk:
        """The trunk for these sizes."""
        raise NotImplementedError


class MLPConfig(TrunkConfig):
    """A multi-layer perceptron."""

    trunk: Literal["mlp"] = "mlp"
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    layer_norm: bool = False
    """Normalize the hidden layers before their activation."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability with which an output of a hidden layer is zeroed in training."""

    def build(
        self,
        in_features: int,
        out_features: int,
        *,
        ensemble: int | None = None,
        last_layer_bound: float | None = None,
    ) -> Trunk:
        """The perceptron."""
        from rl_training.models.mlp import MLPTrunk

        return MLPTrunk(
            in_features,
            out_features,
            self.hidden_sizes,
            activation=self.activation,
            layer_norm=self.layer_norm,
            dropout=self.dropout,
            ensemble=ensemble,
            last_layer_bound=last_layer_bound,
        )


def plain_mlp(hidden_sizes: Sequence[int], *, layer_norm: bool = False) -> MLPConfig:
    """A ReLU perceptron; its widths are checked where it is built."""
    return MLPConfig.model_construct(hidden_sizes=tuple(hidden_sizes), layer_norm=layer_norm)


TRUNKS: dict[str, type[TrunkConfig]] = {"mlp": MLPConfig}
"""The package's own trunks by name."""


def trunk_config(options: Mapping[str, Any], where: str) -> TrunkConfig:
    """The typed options of one network; ``where`` is the place of ``options``, for errors."""
    name = options.get("trunk", "mlp")
    if name not in TRUNKS:
        raise ConfigError(f"{where}.trunk = {shown(name)}: unknown{nearest(str(name), TRUNKS)}")
    try:
        return validated(TRUNKS[name], options)
    except ConfigError as error:
        raise ConfigError(f"In {where}: {error}") from None
