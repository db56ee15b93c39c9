"""Hyperparameters shared by algorithms; each algorithm's file extends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from rl_training.config_model import ConfigModel, NamedSettings, Trait, refuse_unknown_names
from rl_training.errors import ConfigError
from rl_training.models.network_config import (
    TRUNKS,
    CNNConfig,
    TrunkConfig,
    Width,
    Widths,
    trunk_config,
)
from rl_training.text import shown
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Width", "Widths"]

# Upper bounds are far above practical values; they catch typos before memory is allocated.
EnsembleSize = Annotated[int, Field(gt=0, le=65_536), Trait.NETWORK_SIZE]
BatchSize = Annotated[int, Field(gt=0, le=2**24), Trait.UPDATE_SIZE]
SampleCount = Annotated[int, Field(gt=0, le=65_536), Trait.UPDATE_SIZE]
Capacity = Annotated[int, Field(gt=0, le=10**9)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Networks = Annotated[dict[str, dict[str, Any]], Trait.NETWORK_SIZE]
"""Options of each network by name, or of `all` networks."""
DecayRate = Annotated[float, Field(ge=0, lt=1)]
Projection = Literal["none", "unit_rows", "unit_rows_and_norms"]


class OptimizerConfig(NamedSettings):
    """One entry of `optimizers`: options that override the algorithm's defaults."""

    learning_rate: LearningRate | None = None
    """Learning rate; schedules scale it."""
    betas: tuple[DecayRate, DecayRate] | None = None
    """Decay rates of Adam's two moments; 0.9 and 0.999 by default."""
    eps: Annotated[float, Field(gt=0, le=1)] | None = None
    """Constant added to the root of Adam's second moment; 1e-8 by default."""
    weight_decay: Annotated[float, Field(ge=0, le=1_000)] | None = None
    """Decoupled weight decay of AdamW: each step shrinks weights by learning rate × this."""
    max_norm: Annotated[float, Field(gt=0)] | None = None
    """Clip the gradient to this Euclidean norm."""
    decay_steps: Annotated[int, Field(gt=0)] | None = None
    """Steps of this optimizer over which its learning rate decays, with a cosine."""
    decay_final: Annotated[float, Field(ge=0, le=1)] | None = None
    """Fraction of the learning rate after the decay; 0 by default."""
    projection: Projection | None = None
    """Projection after every step: `unit_rows` scales each unit's incoming weights to norm 1, and
    `unit_rows_and_norms` also the parameters of each normalization of d units to norm √d."""


PRIORITY_KEYS = "priority_exponent", "importance_exponent", "priority_epsilon"
MAX_PRIORITIES = 100_000_000
"""Checkpoints store priorities in ``state.json``, whose size is limited."""


class AlgorithmConfig(ConfigModel):
    """Base of every algorithm's config: immutable, and unknown keys raise an error."""

    batch_size: BatchSize = 256
    """Number of transitions in each gradient update."""
    learning_rate: LearningRate = 3e-4
    """Learning rate of Adam, for every network; a schedule scales it."""
    hidden_sizes: Widths = (256, 256)
    """Widths of the hidden layers."""
    optimizers: dict[str, OptimizerConfig] = Field(default_factory=dict)
    """Options of Adam for each optimizer by name, or for `all` (docs/configuration.md)."""


class ValueConfig(AlgorithmConfig):
    """Options of every learner with value functions, online or offline."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount factor γ of future rewards."""
    tau: float = Field(default=0.005, gt=0, le=1)
    """Polyak rate τ of the target networks: target ← (1 − τ) target + τ online."""
    n_step: int = Field(default=1, gt=0, le=1_000)
    """Number of rewards in a target before it bootstraps; fewer at the end of an episode."""


class NetworkedConfig(AlgorithmConfig):
    """Options of every learner with configurable networks."""

    network_names: ClassVar[tuple[str, ...]] = ("actor", "critic")
    """Names of the learner's networks."""
    network_keys: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Network options that a config key sets, in addition to `hidden_sizes`: option → key."""
    network_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Default options of the networks, in the form of `networks`."""

    networks: Networks = Field(default_factory=dict)
    """Trunk and options of each network by name, or of `all` (docs/configuration.md)."""
    augmentation: Literal["none", "random_shift"] = "none"
    """Shift the images of every batch at random, as in DrQ (docs/pixels.md)."""
    augmentation_pad: int = Field(default=4, gt=0, le=64)
    """Largest shift of an image in each direction, in pixels."""

    @model_validator(mode="after")
    def _check_networks(self) -> Self:
        refuse_unknown_names(self.networks, self.network_names, "networks")
        self._refuse_unused()
        default = type(self).model_fields["augmentation_pad"].default
        if self.augmentation == "none" and self.augmentation_pad != default:
            raise ConfigError(
                "augmentation_pad only applies to augmentation=random_shift: set that, or remove "
                "augmentation_pad."
            )
        return self

    def trunks(self, spec: EnvSpec | None = None) -> dict[str, TrunkConfig]:
        """Return the typed options of every network, for the observations of an environment.

        The default trunk is `cnn` if they contain images, and `mlp` otherwise.
        """
        entries = () if spec is None else spec.entries
        has_images = any(entry.kind == "image" for entry in entries)
        found = {}
        for name in self.network_names:
            where = f"networks.{name}"
            trunk = trunk_config(self._network_options(name, has_images), where)
            if spec is not None:
                _check_images(trunk, has_images, where)
            found[name] = trunk.with_entries(entries)
        return found

    def _network_options(self, name: str, has_images: bool) -> dict[str, Any]:
        """Merge the options of a network; changing the trunk discards earlier options.

        For images, default trunks that cannot read them are replaced by `cnn`.
        """
        options: dict[str, Any] = {"trunk": "cnn" if has_images else "mlp"}
        for source in (self.network_defaults, self.networks):
            for given in (source.get("all", {}), source.get(name, {})):
                trunk = TRUNKS.get(str(given.get("trunk")))
                blind = trunk is not None and not trunk.reads_images
                if source is self.network_defaults and has_images and blind:
                    continue
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

    def _uses(self, key: str) -> bool:
        """Return whether the learner uses a network's key itself, apart from the trunk."""
        return False

    def _refuse_unused(self) -> None:
        """Raise an error for options that no network uses.

        Keys with their default value are ignored, since a resolved config has all keys.
        """
        trunks = self.trunks()

        def is_used(option: str, value: Any, names: Iterator[str]) -> bool:
            value = _as_tuples(value)
            return any(trunks[name].option(option) == value for name in names)

        fields = type(self).model_fields
        keys = {pair for name in self.network_names for pair in self._keys_of(name).items()}
        for option, key in sorted(keys):
            value = getattr(self, key)
            names = (n for n in self.network_names if self._keys_of(n).get(option) == key)
            is_default = value == fields[key].get_default()
            if not is_default and not self._uses(key) and not is_used(option, value, names):
                given = list(value) if isinstance(value, tuple) else value
                raise ConfigError(
                    f"{key} = {shown(given)} has no effect, because no network uses it with "
                    f"networks = {shown(self.networks)}. Remove one of the two keys."
                )
        for option, value in self.networks.get("all", {}).items():
            if not is_used(option, value, iter(self.network_names)):
                raise ConfigError(
                    f"networks.all.{option} = {shown(value)} has no effect, because no network "
                    "uses it. Remove it."
                )


def _as_tuples(value: Any) -> Any:
    """Return nested lists as tuples, as the typed options have them."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


def _check_images(trunk: TrunkConfig, has_images: bool, where: str) -> None:
    """Reject a trunk that cannot use the observations, or needs others."""
    if has_images and not trunk.reads_images:
        raise ConfigError(
            f"{where}.trunk = {shown(trunk.trunk)} cannot read images: use cnn, or a network that "
            "you register with register_network."
        )
    if not has_images and isinstance(trunk, CNNConfig):
        raise ConfigError(
            f"{where}.trunk = 'cnn' needs images, but the observations have none: use another "
            "trunk, or declare images as a Box with dtype=np.uint8."
        )


class ActorCriticConfig(NetworkedConfig, ValueConfig):
    """Options of every actor-critic learner, online or offline."""

    num_critics: EnsembleSize = 2
    """Number of critics in the ensemble."""


class CollectionConfig(AlgorithmConfig):
    """Options of every learner that collects data."""

    buffer_capacity: Capacity = 1_000_000
    """Capacity of the replay buffer in transitions; the oldest are overwritten."""
    learning_starts: Annotated[int, Trait.FRESH] = Field(default=5_000, ge=0)
    """Environment steps with uniform random actions before the first update."""
    train_frequency: int = Field(default=1, gt=0)
    """Transitions to collect between rounds of updates."""
    gradient_updates_per_step: int = Field(default=1, gt=0)
    """Number of gradient updates in each round."""
    replay: Literal["uniform", "prioritized"] = "uniform"
    """How transitions are sampled: uniformly, or by the size of their TD errors."""
    priority_exponent: float = Field(default=0.6, ge=0, le=1)
    """Exponent α of the priorities; 0 samples uniformly."""
    importance_exponent: float = Field(default=0.4, ge=0, le=1)
    """Initial exponent β of the importance weights; it grows to 1 over the run's budget."""
    priority_epsilon: float = Field(default=1e-6, gt=0)
    """Constant added to every absolute TD error, so that each transition can be sampled."""
    normalize_observations: bool = False
    """Standardize observations with running statistics of the collected observations."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    return_bound: float | None = Field(default=None, gt=0)
    """With `normalize_rewards`: largest absolute discounted return after the division."""
    exploration_hold: int = Field(default=1, gt=0, le=1_000)
    """Longest time that exploration keeps its noise, in steps; 1 draws new noise in each step."""

    @model_validator(mode="after")
    def _check_dependent_keys(self) -> Self:
        for key in () if self.replay == "prioritized" else PRIORITY_KEYS:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key} only applies to replay=prioritized; set that, or remove {key}"
                )
        own_bound = type(self).model_fields["return_bound"].default is not None
        if self.return_bound is not None and not (self.normalize_rewards or own_bound):
            raise ValueError(
                "return_bound only applies to normalize_rewards=true; set that, or remove "
                "return_bound"
            )
        if self.replay == "prioritized" and self.buffer_capacity > MAX_PRIORITIES:
            raise ValueError(
                f"buffer_capacity = {self.buffer_capacity}: should be at most {MAX_PRIORITIES} "
                "with replay=prioritized"
            )
        return self

    @property
    def replay_kind(self) -> str:
        """The kind of replay, a key of `data.replays.REPLAYS`."""
        return self.replay

    def replay_options(self) -> dict[str, Any]:
        """Return the arguments of the replay buffer other than sizes and device."""
        keys = PRIORITY_KEYS if self.replay == "prioritized" else ()
        return {key: getattr(self, key) for key in keys}


class MixingConfig(CollectionConfig):
    """Options of every learner that collects data in addition to a dataset."""

    offline_batch_ratio: Annotated[float, Trait.FRESH] = Field(default=0.5, ge=0, le=1)
    """Share of dataset rows in every batch, rounded to whole rows (half up)."""
    offline_pretrain_updates: Annotated[int, Trait.FRESH] = Field(default=0, ge=0)
    """Updates on the dataset alone before the first environment step; they count as steps."""
    random_play: Annotated[bool, Trait.FRESH] = True
    """Take random actions until `learning_starts`; otherwise the policy acts from the start."""

    @property
    def first_step(self) -> int:
        """Step count at the start of the run."""
        return 0

    @property
    def online_from(self) -> int:
        """Step at which collection starts; all earlier steps are gradient updates."""
        return self.first_step + self.offline_pretrain_updates


class OffPolicyConfig(CollectionConfig, ValueConfig):
    """Options of every online learner."""
