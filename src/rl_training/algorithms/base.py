"""Base classes of all learners: modules with `act`, `noise` and `update`, and state in tensors."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.augmentation import NOISE, shift_noise, shifted_batch
from rl_training.algorithms.config import (
    ActorCriticConfig,
    AlgorithmConfig,
    CollectionConfig,
    NetworkedConfig,
    OptimizerConfig,
    Projection,
)
from rl_training.algorithms.optimizers import PROJECTIONS, FlatAdam, clip_norm, network_of
from rl_training.config_model import merged_settings, refuse_unknown_names
from rl_training.errors import ConfigError, nearest
from rl_training.models import ActorCriticModel
from rl_training.models.categorical import CategoricalActor
from rl_training.models.inputs import InputLayout
from rl_training.normalization import (
    OBSERVATION_CLIP,
    Normalization,
    RunningMoments,
    bounded_scale,
)
from rl_training.text import counted, first_line, shown
from rl_training.types import (
    SAMPLE,
    TD_ERROR,
    ActionKind,
    Batch,
    EnvSpec,
    Metrics,
    Mode,
    Noise,
    NoiseField,
    NoiseSpec,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Due = frozenset[str]
"""The delayed stages that run in one update."""


class Terms(NamedTuple):
    """The losses of one stage at the current parameters."""

    loss: Tensor
    """The loss that the stage minimizes."""
    metrics: Metrics
    """Reported values: losses (``loss/…``), other metrics, and per-row values for the sampler
    (``sample/…``)."""

    @property
    def losses(self) -> Metrics:
        """The reported losses only."""
        return {name: value for name, value in self.metrics.items() if name.startswith("loss/")}


class Stage(NamedTuple):
    """One step of an update: its terms, and the parameters to update by optimizer name."""

    terms: Terms
    parameters: Mapping[str, Tensor]
    max_norm: float | None = None


@torch.no_grad()
def polyak_update(target: Tensor, online: Tensor, tau: float) -> None:
    """Update the target in place: target ← (1 − τ) target + τ online."""
    target.lerp_(online, tau)


def td_target(
    rewards: Tensor, terminations: Tensor, next_value: Tensor, *, gamma: float | Tensor
) -> Tensor:
    """Return y = r + γ (1 − d) V(s'), where d marks only terminations: time limits bootstrap.

    ``gamma`` is a number, or the `bootstrap_discount` of each row.
    """
    if isinstance(gamma, Tensor):
        return torch.addcmul(rewards, gamma.view_as(rewards) * (1.0 - terminations), next_value)
    return torch.addcmul(rewards, 1.0 - terminations, next_value, value=gamma)


def bootstrap_discount(batch: Batch, gamma: float) -> float | Tensor:
    """Return the discount of V(s'): γ^m per row for rewards over m steps (`n_step`), else γ."""
    return batch.extra.get("discounts", gamma)


def critic_loss(q: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return Σ_i mean w (Q_i(s, a) − y)²; ``q`` is ``[N, B]``, ``target`` ``[B]``.

    ``weights`` are the importance weights w ``[B]`` of the rows, 1 by default.
    """
    return weighted((q - target.unsqueeze(-2)).square(), weights).mean(-1).sum(-1)


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply the rows' losses ``[..., B]`` by their weights, if there are any."""
    return losses if weights is None else losses * weights


def importance_weights(batch: Batch) -> Tensor | None:
    """Return the importance weights ``[B]`` of a prioritized batch, or None."""
    return batch.extra.get("weights")


def td_errors(q: Tensor, target: Tensor, batch: Batch) -> Metrics:
    """Report |Q − y| of each row, averaged over critics, to a prioritized sampler.

    ``q`` is ``[N, B]``, ``target`` ``[B]``. Batches without importance weights report nothing.
    """
    if importance_weights(batch) is None:
        return {}
    return {TD_ERROR: (q.detach() - target.unsqueeze(-2)).abs().mean(-2)}


def critic_metrics(loss: Tensor, q: Tensor, target: Tensor) -> Metrics:
    """Return the metrics of a critic stage; ``q`` is ``[N, B]``, ``target`` ``[B]``."""
    return {"loss/critic": loss} | value_metrics(q, target)


def value_metrics(q: Tensor, target: Tensor) -> Metrics:
    """Return the means of Q-values ``[N, B]`` and targets ``[B]``."""
    return {"q/mean": q.detach().mean((-2, -1)), "q/target": target.mean(-1)}


def critic_terms(model: ActorCriticModel, batch: Batch, target: Tensor) -> Terms:
    """Compute the squared error of every critic; ``target`` is ``[B]``."""
    return td_terms(model.q_values(batch.obs, batch.actions), batch, target)


def td_terms(q: Tensor, batch: Batch, target: Tensor) -> Terms:
    """Compute the squared error of given Q-values ``[N, B]``; ``target`` is ``[B]``."""
    loss = critic_loss(q, target, importance_weights(batch))
    return Terms(loss, critic_metrics(loss, q, target) | td_errors(q, target, batch))


def check_metrics(metrics: Metrics, batch: Batch) -> None:
    """Raise an error for metrics that are not scalars, or values of rows that are not ``[B]``."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"An update returns {shown(metrics)}, but should return its metrics: a dict of tensors."
        )
    for name, value in metrics.items():
        shape = [len(batch.rewards)] if name.startswith(SAMPLE) else []
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"The metric {name!r} is of type {type(value).__name__}, but should be a tensor."
            )
        if list(value.shape) != shape:
            wanted = f"have the shape {shape}" if shape else "be a scalar: use mean(), for example"
            raise ConfigError(
                f"The metric {name!r} has the shape {list(value.shape)}, but should {wanted}."
            )


class Algorithm(nn.Module, ABC):
    """Base class of learners. Subclasses define the networks, the losses and `update`.

    Everything that must survive a restart is a parameter or a buffer: `state_dict` is a flat
    mapping of named tensors, and `load_state_dict` restores it in place.
    """

    # The declaration, from which the registry, exports, managed classes and docs are derived.
    name: ClassVar[str]
    """The value of `algo:` in a config; for built-in learners also the name of the file."""
    title: ClassVar[str] = ""
    """The full name. Built-in learners without a title are internal."""
    paper: ClassVar[str] = ""
    mode: ClassVar[Mode] = "online"
    actions: ClassVar[ActionKind] = "continuous"
    """The kind of action space of this class."""
    summary: ClassVar[str] = ""
    """One sentence; the default is the first line of the docstring."""
    config_class: ClassVar[type[AlgorithmConfig]]
    supports_n_step: ClassVar[bool] = False
    """Whether targets use `bootstrap_discount`, which `n_step` > 1 requires."""
    supports_multi_discrete: ClassVar[bool] = False
    """Whether it supports MultiDiscrete actions, ``[B, numbers]``, besides discrete ones."""
    mask_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of `MASK_FIELDS` that batches have if the environment provides action masks, which
    `choose_actions` then receives as well. Empty for a learner that does not support masks."""
    learns_from_rewards: ClassVar[bool] = True
    """Whether fine-tuning in an environment can improve it."""
    replay_class: ClassVar[type[Any] | None] = None
    """A `ReplayBuffer` class to use instead of the one that `replay` in the config selects. Its
    `build` receives the config's `replay_options`."""
    exports: ClassVar[tuple[str, ...]] = ()
    """Functions to export from `rl_training` in addition to `<name>_loss`."""

    intervals: Mapping[str, int] = {}
    """Delayed stages: a stage with interval n runs in every n-th update."""
    scheduled: ClassVar[tuple[str, ...]] = ()
    """The optimizers that follow a learning-rate schedule; empty means all."""
    loss_parts: ClassVar[frozenset[str]] = frozenset()
    """Reported losses that are already part of another reported loss."""
    obs_shift: Tensor
    obs_scale: Tensor
    obs_limits: Tensor
    vector_columns: Tensor
    obs_moments: RunningMoments | None
    return_moments: RunningMoments | None
    reward_scale: Tensor
    largest_return: Tensor

    def __init__(self, spec: EnvSpec, config: Any, generator: torch.Generator) -> None:
        """Build the networks; all initial weights are drawn from ``generator``."""
        super().__init__()
        self.spec = spec
        self.config: AlgorithmConfig = config
        self.optimizers = nn.ModuleDict()
        self.register_buffer("obs_shift", torch.zeros(spec.obs_dim))
        self.register_buffer("obs_scale", torch.ones(spec.obs_dim))
        running = config if isinstance(config, CollectionConfig) else CollectionConfig()
        self.obs_moments = self.return_moments = None
        self._images: InputLayout | None = None
        if any(entry.kind == "image" for entry in spec.entries):
            self._images = InputLayout(spec.entries)
            # Pixels are not normalized.
            self.register_buffer("vector_columns", self._images.vector_columns(), persistent=False)
            limits = torch.full((spec.obs_dim,), math.inf)
            limits[self._images.vector_columns()] = OBSERVATION_CLIP
            self.register_buffer("obs_limits", limits, persistent=False)
        if running.normalize_observations:
            size = spec.obs_dim if self._images is None else len(self.vector_columns)
            self.obs_moments = RunningMoments(size)
        if running.normalize_rewards:
            self.return_moments = RunningMoments(1)
            self.register_buffer("reward_scale", torch.ones(()))
            self._return_bound = running.return_bound
            if self._return_bound is not None:
                self.register_buffer("largest_return", torch.zeros((), dtype=torch.float64))

    @classmethod
    def build(cls, spec: EnvSpec, config: Any = None, *, seed: int = 0) -> Self:
        """Build a learner for an environment; ``seed`` determines the initial weights."""
        chosen = cls.for_spec(spec)
        if config is not None and not isinstance(config, AlgorithmConfig):
            wanted = chosen.config_class.__name__
            raise ConfigError(
                f"config = {shown(config)}: should be a config object, such as {wanted}(…), with "
                "the keys as arguments."
            )
        chosen.check_spec(spec)
        generator = torch.Generator().manual_seed(seed)
        learner = chosen(spec, config or cls.config_class(), generator)
        refuse_unknown_names(learner.config.optimizers, learner.optimizers, "optimizers")
        return cast("Self", learner)

    @classmethod
    def for_spec(cls, spec: EnvSpec) -> type[Algorithm]:
        """Return the class for the actions of an environment: this one or its variant."""
        has_variant = "discrete_variant" in vars(cls)
        return cls.discrete_variant() if spec.discrete and has_variant else cls

    @classmethod
    def discrete_variant(cls) -> type[Algorithm]:
        """Return the class that learns with discrete actions instead of this one.

        Subclasses do not inherit it, since the variant knows nothing about their changes.
        """
        return cls

    @classmethod
    def check_spec(cls, spec: EnvSpec) -> None:
        """Raise an error if the class does not support the environment's actions."""
        if spec.action_choices and not cls.supports_multi_discrete:
            sizes = ", ".join(map(str, spec.action_choices))
            raise ConfigError(
                f"{cls.name} does not support the action space MultiDiscrete([{sizes}]): use bc, "
                f"or convert it to Discrete({math.prod(spec.action_choices)}) with a "
                "gymnasium.ActionWrapper."
            )
        if spec.discrete and cls.actions == "continuous":
            raise ConfigError(
                f"{cls.name} needs a bounded Box action space, but the action space is "
                f"Discrete({spec.action_dim}). Choose an algorithm for discrete actions, such as "
                "dqn or sac, or bc, iql or cql for recorded data."
            )
        if not spec.discrete and cls.actions == "discrete":
            raise ConfigError(
                f"{cls.name} needs a Discrete action space, but the action space is a Box of "
                f"{counted(spec.action_dim, 'value')}. Choose an algorithm for continuous actions, "
                "such as sac."
            )

    @torch.no_grad()
    def act(
        self,
        obs: Tensor,
        *,
        deterministic: bool,
        noise: Noise | None = None,
        legal: Tensor | None = None,
    ) -> Tensor:
        """Return actions in model space for raw observations ``[B, obs_dim]``.

        Inference calls only this method. ``noise`` holds the tensors declared by `act_noise` and is
        required unless ``deterministic``. ``legal`` is 1 for each legal action and 0 for the
        others, ``[B, actions]``; without it, all actions are legal.
        """
        normalized = self.normalization.observations(obs)
        if legal is None:
            return self.choose_actions(normalized, deterministic=deterministic, noise=noise)
        return self.choose_actions(
            normalized, deterministic=deterministic, noise=noise, legal=legal
        )

    @abstractmethod
    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        """Return the policy's actions for normalized observations, as used in updates.

        ``legal`` is given only to a learner with `mask_fields`.
        """

    def set_normalization(self, mean: Tensor, std: Tensor) -> None:
        """Standardize observations in `act`; updates then expect standardized batches.

        Both have a value for each number of an observation that is not a pixel.
        """
        self._set_statistics(mean, 1.0 / std)

    def _set_statistics(self, shift: Tensor, scale: Tensor) -> None:
        for target, values in ((self.obs_shift, shift), (self.obs_scale, scale)):
            if self._images is None:
                target.copy_(values)
            else:
                target[self.vector_columns] = values.to(target)

    @property
    def vector_statistics(self) -> tuple[Tensor, Tensor]:
        """Shift and scale of the values of an observation that are not pixels."""
        if self._images is None:
            return self.obs_shift, self.obs_scale
        return self.obs_shift[self.vector_columns], self.obs_scale[self.vector_columns]

    @property
    def has_running_statistics(self) -> bool:
        """Whether `observe` changes the normalization."""
        return self.obs_moments is not None or self.return_moments is not None

    @property
    def observation_clip(self) -> float | None:
        """Largest value of a normalized entry that is not a pixel; None if there is no limit."""
        return None if self.obs_moments is None else OBSERVATION_CLIP

    @property
    def normalization(self) -> Normalization:
        """The normalization of observations in `act` and of batches in updates."""
        clip: float | Tensor | None = self.observation_clip
        if clip is not None and self._images is not None:
            clip = self.obs_limits
        reward_scale = None if self.return_moments is None else self.reward_scale
        return Normalization(self.obs_shift, self.obs_scale, clip, reward_scale)

    @torch.no_grad()
    def observe(self, obs: Tensor, returns: Tensor) -> None:
        """Update the running statistics, if there are any.

        Args:
            obs: Raw observations of transitions, ``[n, obs_dim]``.
            returns: Discounted returns of the episodes up to each transition, ``[n]``.
        """
        self.observe_vectors(obs if self._images is None else obs[:, self.vector_columns], returns)

    @torch.no_grad()
    def observe_vectors(self, vectors: Tensor, returns: Tensor) -> None:
        """Update the running statistics with the values of observations that are not pixels."""
        if self.obs_moments is not None:
            self.obs_moments.update(vectors)
            self._set_statistics(self.obs_moments.mean, self.obs_moments.scale())
        if self.return_moments is not None:
            self.return_moments.update(returns.unsqueeze(-1))
            scale = self.return_moments.scale()
            if self._return_bound is not None:
                torch.maximum(self.largest_return, returns.abs().amax(), out=self.largest_return)
                moments, largest = self.return_moments, self.largest_return
                scale = bounded_scale(moments, largest, self._return_bound)
            self.reward_scale.copy_(scale.squeeze())

    @abstractmethod
    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare the random inputs of `act` with exploration."""

    @abstractmethod
    def noise(self, batch_size: int) -> NoiseSpec:
        """Declare the random inputs of one `update`, which draws no random numbers itself."""

    def fields(self) -> tuple[str, ...]:
        """Declare the batch fields that `update` needs in addition to the five standard ones.

        They are names from `types.FIELD_NAMES` or columns of the dataset. They may depend only on
        ``self.config``, because a run reads them before it builds networks.
        """
        return ()

    @classmethod
    def declared_fields(cls, config: AlgorithmConfig) -> tuple[str, ...]:
        """Return the `fields` of a learner with ``config`` without building it."""
        learner = cls.__new__(cls)
        nn.Module.__init__(learner)
        learner.config = config
        try:
            declared = learner.fields()
        except AttributeError as error:
            raise ConfigError(
                f"{cls.__name__}.fields may only read self.config, since it is called before the "
                f"networks are built: {first_line(error)}."
            ) from error
        if isinstance(declared, str):  # tuple(declared) would split it into letters
            raise ConfigError(
                f"{cls.__name__}.fields returns the string {declared!r}, but should return a tuple "
                f"of names: ({declared!r},)."
            )
        return tuple(declared)

    @abstractmethod
    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        """Run one gradient update and return metrics, which stay on the device.

        A metric whose name starts with ``sample/`` has one value per row, ``[B]``. It is not logged
        but passed to `Sampler.feedback`; a prioritized replay needs ``sample/td_error``.

        ``due`` is the result of `due` for the number of updates so far. A learner without
        `intervals` always runs the same update and may omit this parameter.
        """

    def due(self, updates: int) -> Due:
        """Return the delayed stages of the next update, after ``updates`` earlier ones."""
        return frozenset(key for key, every in self.intervals.items() if (updates + 1) % every == 0)

    def all_due(self) -> list[Due]:
        """Return every value that `due` can take; an engine prepares an update for each."""
        sizes = range(len(self.intervals) + 1)
        groups = [group for size in sizes for group in combinations(self.intervals.values(), size)]
        # The first update that runs all stages of a group may run others too; `due` includes them.
        return list(dict.fromkeys(self.due(math.lcm(*group) - 1) for group in groups))

    def checked_due(self, due: Due | None) -> Due:
        """Return ``due``, which may be None if every update runs every stage."""
        if due is None:
            rare = [f"{key!r} only every {n} updates" for key, n in self.intervals.items() if n > 1]
            if rare:
                raise ConfigError(
                    f"{self.name} runs {', '.join(rare)}, so update() needs `due`: call "
                    "update(batch, noise, learner.due(n)) after n earlier updates."
                )
            return frozenset(self.intervals)
        if unknown := set(due) - set(self.intervals):
            raise ConfigError(
                f"due = {sorted(unknown)}: the delayed stages of {self.name} are "
                f"{list(self.intervals)}. Pass learner.due(n) after n earlier updates."
            )
        return due

    def update_noise(self, batch_size: int) -> NoiseSpec:
        """Return the random inputs of `run_update`: those of `update` and of the augmentation."""
        return {**self.noise(batch_size), **(shift_noise(batch_size) if self.augments else {})}

    @property
    def augments(self) -> bool:
        """Whether updates shift the images of their batches."""
        config = self.config
        return isinstance(config, NetworkedConfig) and config.augmentation == "random_shift"

    def run_update(self, batch: Batch, noise: Noise, due: Due) -> Metrics:
        """Augment the batch if configured, and call `update`.

        ``due`` is left out if every update runs the same stages.
        """
        if isinstance(self.config, NetworkedConfig) and self.augments:
            pad = self.config.augmentation_pad
            batch = shifted_batch(batch, self.spec, noise[NOISE], pad=pad)
        same = all(every == 1 for every in self.intervals.values())
        metrics = self.update(batch, noise) if same else self.update(batch, noise, due)
        check_metrics(metrics, batch)
        return metrics

    def held_out_losses(self, batch: Batch, noise: Noise) -> Metrics:
        """Return every loss at the current parameters, which are not changed.

        This default works for any `update`: it updates a copy with learning rates of 0.
        """
        copied = copy.deepcopy(self)
        for key in copied.optimizers:
            copied.optimizer(key).scale_learning_rate(0.0)
        metrics = copied.run_update(batch, noise, frozenset(self.intervals))
        return {name: value for name, value in metrics.items() if name.startswith("loss/")}

    def explore_at(self, step: int) -> None:
        """Set the exploration for environment step ``step``; called before `act`."""

    def add_optimizer(
        self,
        key: str,
        parameter: Tensor,
        *,
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decoupled_weight_decay: float = 0.0,
        max_norm: float | None = None,
        projection: Projection | None = None,
        decay_steps: int | None = None,
        decay_final: float = 0.0,
    ) -> None:
        """Add an Adam optimizer for ``parameter``.

        The arguments are the algorithm's defaults; `optimizers` in the config overrides them. The
        default learning rate is the config's. ``weight_decay`` is an L2 term in the gradient;
        ``decoupled_weight_decay``, which the config calls `weight_decay`, is AdamW's. A
        ``projection`` needs a network, which must be assigned to the learner first.
        """
        options: dict[str, Any] = {
            "learning_rate": self.config.learning_rate if learning_rate is None else learning_rate,
            "betas": betas,
            "eps": eps,
            "weight_decay": decoupled_weight_decay,
            "max_norm": max_norm,
            "projection": projection,
            "decay_steps": decay_steps,
            "decay_final": decay_final,
        } | merged_settings(self.config.optimizers, key)
        project = None
        if (chosen := options.pop("projection")) not in (None, "none"):
            network = network_of(self, parameter)
            own = self.config.optimizers.get(key, OptimizerConfig())
            if network is not None and network.unit_weights(network.flat.detach()):
                project = partial(PROJECTIONS[chosen], network)
            elif (
                network is not None or projection or own.projection
            ):  # `all` applies to networks only
                raise ConfigError(
                    f"optimizers.{key}.projection = {chosen}: {key!r} has no weights "
                    "that can be projected. Remove this key."
                )
        options["decoupled_weight_decay"] = options.pop("weight_decay")
        adam = FlatAdam(parameter, weight_decay=weight_decay, project=project, **options)
        self.optimizers[key] = adam

    def optimizer(self, key: str) -> FlatAdam:
        """Return the optimizer of this name."""
        if key not in self.optimizers:
            raise ConfigError(
                f"{self.name} has no optimizer {key!r}{nearest(key, list(self.optimizers))}"
            )
        return cast("FlatAdam", self.optimizers[key])

    def minimize(
        self, loss: Tensor, max_norm: float | None = None, /, **parameters: Tensor
    ) -> None:
        """Take one optimizer step on ``loss`` for each parameter, given by optimizer name.

        Each parameter's gradient is clipped to ``max_norm`` unless its optimizer has its own limit.
        """
        if loss.dim():
            raise ConfigError(
                f"The loss of {', '.join(parameters)} has the shape {list(loss.shape)}, but should "
                "be a scalar. Reduce it, for example with mean()."
            )
        gradients = torch.autograd.grad(loss, tuple(parameters.values()))
        for (key, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            optimizer = self.optimizer(key)
            if max_norm is not None and optimizer.max_norm is None:
                gradient = clip_norm(gradient, max_norm)
            optimizer.step(parameter, gradient)

    def scale_learning_rates(self, factor: float) -> None:
        """Apply a schedule's factor to the `scheduled` optimizers, or to all."""
        for key in self.scheduled or self.optimizers:
            self.optimizer(key).scale_learning_rate(factor)


class StagedAlgorithm(Algorithm):
    """A learner whose update is a sequence of stages, each with one optimizer step."""

    @abstractmethod
    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the stages of one update, in order.

        Each stage is computed after the step of the previous one and uses the updated parameters.
        """

    def move_targets(self, due: Due) -> None:
        """Update the target networks; called after the last stage."""

    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> Metrics:
        """Take the step of every stage, then update the targets."""
        due = self.checked_due(due)
        metrics: Metrics = {}
        for terms, parameters, max_norm in self._checked_stages(batch, noise, due):
            self.minimize(terms.loss, max_norm, **parameters)
            metrics |= {name: value.detach() for name, value in terms.metrics.items()}
        self.move_targets(due)
        return metrics

    def _checked_stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the `stages`; raise an error for a result that is not one."""
        stages: Any = self.stages(batch, noise, due)
        if not isinstance(stages, Iterable):
            raise ConfigError(
                f"{type(self).__name__}.stages returns {shown(stages)}, but should yield each "
                "Stage of an update."
            )
        for stage in stages:
            if not isinstance(stage, Stage):
                raise ConfigError(
                    f"{type(self).__name__}.stages yields {shown(stage)} instead of a Stage. Check "
                    "that methods such as critic_stage return their Stage."
                )
            check_metrics(stage.terms.metrics, batch)
            yield stage

    @torch.no_grad()
    def held_out_losses(self, batch: Batch, noise: Noise) -> Metrics:
        """Return the losses of all stages at the current parameters, without a step."""
        losses: Metrics = {}
        for stage in self._checked_stages(batch, noise, frozenset(self.intervals)):
            losses |= stage.terms.losses
        return losses


def action_noise(spec: EnvSpec, batch_size: int) -> NoiseField:
    """Return the noise of a policy's sample: normal, or one uniform number per discrete action."""
    kind: Literal["normal", "uniform"] = "uniform" if spec.discrete else "normal"
    return NoiseField(kind, (batch_size, spec.action_dim))


class PolicyLearner(StagedAlgorithm):
    """A learner that acts with its model's actor."""

    model: ActorCriticModel

    def act_noise(self, batch_size: int) -> NoiseSpec:
        """Declare the noise of an action."""
        return {"action": action_noise(self.spec, batch_size)}

    def choose_actions(
        self, obs: Tensor, *, deterministic: bool, noise: Noise | None, legal: Tensor | None = None
    ) -> Tensor:
        """Return the policy's mode, or actions with exploration."""
        actor = self.model.actor
        assert deterministic or noise is not None, "exploration needs the noise of act_noise"
        sample = None if noise is None or deterministic else noise["action"]
        if isinstance(actor, CategoricalActor):
            return actor.choose(obs, sample, legal)
        return actor.mode(obs) if sample is None else self.explore(obs, sample)

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Return exploratory actions in [-1, 1] from standard-normal ``noise``."""
        return self.model.actor.explore(obs, noise)


class ActorCritic(PolicyLearner):
    """A learner with an actor, an ensemble of critics and optional target critics."""

    supports_n_step: ClassVar[bool] = True
    config: ActorCriticConfig
    intervals: Mapping[str, int] = {"actor": 1}

    def stages(self, batch: Batch, noise: Noise, due: Due) -> Iterator[Stage]:
        """Yield the stage of the critics, then the actor's stage if it is due."""
        yield self.critic_stage(batch, noise)
        if "actor" in due:
            yield self.policy_stage(batch, noise)

    @abstractmethod
    def critic_target(self, batch: Batch, noise: Noise) -> Tensor:
        """Return the critics' regression target, without gradient."""

    def critic_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update every critic toward the target."""
        terms = critic_terms(self.model, batch, self.critic_target(batch, noise))
        return Stage(terms, {"critic": self.model.critic.flat})

    @abstractmethod
    def policy_stage(self, batch: Batch, noise: Noise) -> Stage:
        """Update the actor."""

    def move_targets(self, due: Due) -> None:
        """Update the target critics by Polyak averaging."""
        if self.model.has_target:
            polyak_update(self.model.target, self.model.critic.flat, self.config.tau)


def draw_noise(
    spec: NoiseSpec,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    *,
    lead: tuple[int, ...] = (),
) -> dict[str, Tensor]:
    """Draw the noise that a spec declares, in its order, from one generator.

    ``lead`` are additional leading axes, such as the updates of a block.
    """
    device = generator.device
    drawn: dict[str, Tensor] = {}
    draws = {"normal": torch.randn, "uniform": torch.rand}
    for key, field in spec.items():
        if field.kind not in draws:
            raise ConfigError(
                f"The kind of the noise {key!r} is {field.kind!r}, but should be 'normal' or "
                "'uniform'."
            )
        draw = draws[field.kind]
        shape = (*lead, *field.shape)
        drawn[key] = draw(shape, generator=generator, device=device, dtype=dtype)
    return drawn
