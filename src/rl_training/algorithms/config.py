"""Hyper-parameters that algorithms share; each algorithm's file extends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rl_training.config_model import ConfigModel, NamedSettings, Trait, refuse_unknown_names
from rl_training.errors import ConfigError
from rl_training.models.network_config import TRUNKS, TrunkConfig, Width, Widths, trunk_config
from rl_training.text import shown

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Width", "Widths"]

# Upper bounds are far above any use: typos are caught before memory is allocated.
EnsembleSize = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
BatchSize = Annotated[int, Field(gt=0, le=2**24), Trait.UPDATE_SIZE]
SampleCount = Annotated[int, Field(gt=0, le=65_536), Trait.UPDATE_SIZE]
Capacity = Annotated[int, Field(gt=0, le=10**9)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Networks = Annotated[dict[str, dict[str, Any]], Trait.NETWORK_SIZE]
"""The options of networks by name, or of `all`."""
DecayRate = Annotated[float, Field(ge=0, lt=1)]
Projection = Literal["unit_rows"]


class OptimizerConfig(NamedSettings):
    """One entry of `optimizers`: what it sets, in place of the algorithm's own."""

    learning_rate: LearningRate | None = None
    """Adam's step size; schedules scale it."""
    betas: tuple[DecayRate, DecayRate] | None = None
    """Decay rates of Adam's two moments; 0.9 and 0.999 where nothing sets them."""
    eps: Annotated[float, Field(gt=0, le=1)] | None = None
    """Added to the root of Adam's second moment; 1e-8 where nothing sets it."""
    weight_decay: Annotated[float, Field(ge=0, le=1_000)] | None = None
    """Decoupled weight decay of AdamW: each step shrinks the weights by learning rate times it."""
    max_norm: Annotated[float, Field(gt=0)] | None = None
    """Greatest Euclidean norm of the gradient, which is shortened to it."""
    projection: Projection | None = None
    """`unit_rows` scales each unit's incoming weights to norm 1 after every step."""


PRIORITY_KEYS = "priority_exponent", "importance_exponent", "priority_epsilon"
MOST_PRIORITIES = 100_000_000
"""A checkpoint holds the priorities in its ``state.json``, which has an upper limit."""


class AlgorithmConfig(ConfigModel):
    """Base of every algorithm's config: frozen, and an unknown key is an error."""

    batch_size: BatchSize = 256
    """Transitions in one gradient update."""
    learning_rate: LearningRate = 3e-4
    """Adam's step size, for every network."""
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    optimizers: dict[str, OptimizerConfig] = Field(default_factory=dict)
    """Options of Adam by the name of each optimizer, or of `all` (docs/configuration.md)."""


class ValueConfig(AlgorithmConfig):
    """What every learner of values has, online or offline."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor γ."""
    tau: float = Field(default=0.005, gt=0, le=1)
    """Polyak rate τ of the target networks."""
    n_step: int = Field(default=1, gt=0, le=1_000)
    """Rewards that a target sums up before it bootstraps, fewer where an episode ends."""


class NetworkedConfig(AlgorithmConfig):
    """What every learner has whose networks the config chooses."""

    network_names: ClassVar[tuple[str, ...]] = ("actor", "critic")
    """The learner's networks."""
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """For a network, options that a key of the config sets, besides `hidden_sizes`."""
    network_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options that `networks` begins from, in the same form."""

    networks: Networks = Field(default_factory=dict)
    """Trunk and options of each network by its name, or of `all` (docs/configuration.md)."""

    @model_validator(mode="after")
    def _networks_are_valid(self) -> Self:
        refuse_unknown_names(self.networks, self.network_names, "networks")
        self._refuse_unused()
        return self

    def trunks(self) -> dict[str, TrunkConfig]:
        """The typed options of every network."""
        return {
            name: trunk_config(self._network_options(name), f"networks.{name}")
            for name in self.network_names
        }

    def _network_options(self, name: str) -> dict[str, Any]:
        """What holds for a network; another trunk drops the options of the one before."""
        options: dict[str, Any] = {"trunk": "mlp"}
        for source in (self.network_defaults, self.networks):
            for given in (source.get("all", {}), source.get(name, {})):
                if given.get("trunk", options["trunk"]) != options["trunk"]:
                    options = {}
                options |= given
        model = TRUNKS.get(str(options["trunk"]))
        known = model.model_fields if model else ()
        for option, key in self._keys_of(name).items():
            if option in known:
                options.setdefault(option, getattr(self, key))
        return options

    def _keys_of(self, name: str) -> dict[str, str]:
        return {"hidden_sizes": "hidden_sizes"} | dict(self.network_keys.get(name, {}))

    def _refuse_unused(self) -> None:
        """Refuse what is given for networks of which none takes it.

        A key with its default value is not taken as given: a resolved config holds them all.
        """
        trunks = self.trunks()

        def taken(option: str, value: Any, names: Iterator[str]) -> bool:
            value = tuple(value) if isinstance(value, list) else value
            return any(trunks[name].option(option) == value for name in names)

        fields = type(self).model_fields
        keys = {pair for name in self.network_names for pair in self._keys_of(name).items()}
        for option, key in sorted(keys):
            value = getattr(self, key)
            names = (n for n in self.network_names if self._keys_of(n).get(option) == key)
            if value != fields[key].get_default() and not taken(option, value, names):
                given = list(value) if isinstance(value, tuple) else value
                raise ConfigError(
                    f"{key} = {shown(given)} has no effect: networks = {shown(self.networks)} "
                    "leaves no network that takes it. Leave one of them out."
                )
        for option, value in self.networks.get("all", {}).items():
            if not taken(option, value, iter(self.network_names)):
                raise ConfigError(
                    f"networks.all.{option} = {shown(value)} has no effect: every network has "
                    "options of its own. Leave it out."
                )


class ActorCriticConfig(NetworkedConfig, ValueConfig):
    """What every actor-critic has, online or offline."""

    num_critics: EnsembleSize = 2
    """Critics in the ensemble."""


class CollectionConfig(AlgorithmConfig):
    """What every learner that collects its data has."""

    buffer_capacity: Capacity = 1_000_000
    """Transitions that the replay keeps; the oldest are dropped."""
    learning_starts: Annotated[int, Trait.FRESH] = Field(default=5_000, ge=0)
    """Environment steps of uniform random actions before the first update."""
    train_frequency: int = Field(default=1, gt=0)
    """Collected transitions between rounds of updates."""
    gradient_updates_per_step: int = Field(default=1, gt=0)
    """Updates in each round."""
    replay: Literal["uniform", "prioritized"] = "uniform"
    """How the replay draws transitions: all alike, or by the size of their TD errors."""
    priority_exponent: float = Field(default=0.6, ge=0, le=1)
    """Exponent α of the priorities; 0 draws all transitions alike."""
    importance_exponent: float = Field(default=0.4, ge=0, le=1)
    """First exponent β of the importance weights; it grows to 1 over the run's budget."""
    priority_epsilon: float = Field(default=1e-6, gt=0)
    """Added to the size of every TD error, so that each transition can be drawn."""
    normalize_observations: bool = False
    """Standardize observations by the running moments of all that were collected."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""

    @model_validator(mode="after")
    def _priorities_have_a_use(self) -> Self:
        for key in () if self.replay == "prioritized" else PRIORITY_KEYS:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is for replay 'prioritized': leave it out")
        if self.replay == "prioritized" and self.buffer_capacity > MOST_PRIORITIES:
            raise ValueError(
                f"buffer_capacity = {self.buffer_capacity}: should be at most {MOST_PRIORITIES} "
                "with replay 'prioritized'"
            )
        return self

    @property
    def replay_kind(self) -> str:
        """The kind of replay, a key of `data.replays.REPLAYS`."""
        return self.replay

    def replay_options(self) -> dict[str, Any]:
        """What the replay's class takes besides sizes and device."""
        keys = PRIORITY_KEYS if self.replay == "prioritized" else ()
        return {key: getattr(self, key) for key in keys}


class MixingConfig(CollectionConfig):
    """What every learner that collects beside a dataset has."""

    offline_batch_ratio: Annotated[float, Trait.FRESH] = Field(default=0.5, ge=0, le=1)
    """Share of the dataset's rows in every batch, rounded to whole rows, a half up."""
    offline_pretrain_updates: Annotated[int, Trait.FRESH] = Field(default=0, ge=0)
    """Updates on the dataset alone before the first environment step; intervals count them."""
    random_play: Annotated[bool, Trait.FRESH] = True
    """Play at random until `learning_starts`; otherwise the policy plays from the first step."""

    @property
    def first_step(self) -> int:
        """Where the run's count of steps begins."""
        return 0

    @property
    def online_from(self) -> int:
        """The step at which collection begins: all steps before it are gradient updates."""
        return self.first_step + self.offline_pretrain_updates


class OffPolicyConfig(CollectionConfig, ValueConfig):
    """What every online learner has."""
