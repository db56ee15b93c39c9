"""The options of the managed classes, as type checkers and editors see them."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict


class RunOptions(TypedDict, total=False):
    """A run's keys, and the controls that every algorithm has."""

    seed: int
    output_dir: str | PathLike[str]
    device: str
    num_envs: int
    eval_episodes: int
    checkpoint_interval: int
    log_interval: int
    tags: Sequence[str]
    env_kwargs: dict[str, Any]
    eval_interval: int
    early_stopping: dict[str, Any] | None
    learning_rate_schedule: Literal["constant", "linear", "cosine"]
    learning_rate_warmup: int
    learning_rate_final: float
    schedule_horizon: int | None
    keep_checkpoints: int
    tensorboard: bool
    num_threads: int | None
    engine: Literal["auto", "eager", "compiled", "cuda_graph"]
    matmul_precision: Literal["highest", "high"]
    dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari"] | None
    dataset_path: str | PathLike[str] | None
    dataset_id: str | None
    dataset_download: bool
    dataset_size: int
    dataset_seed: int
    reward_scale: float
    reward_shift: float
    reward_clip_min: float | None
    reward_clip_max: float | None
    return_scaling: bool
    normalize_states: bool
    sampling: Literal["replacement", "epochs"]
    num_epochs: int | None
    validation_fraction: float | None
    action_low: float | Sequence[float] | None
    action_high: float | Sequence[float] | None


class OffPolicyOptions(RunOptions, total=False):
    """Hyper-parameters of every off-policy actor-critic."""

    batch_size: int
    learning_rate: float
    hidden_sizes: Sequence[int]
    gamma: float
    tau: float
    buffer_capacity: int
    learning_starts: int
    train_frequency: int
    gradient_updates_per_step: int


class BCOptions(RunOptions, total=False):
    """BC's hyper-parameters."""

    batch_size: int
    learning_rate: float
    hidden_sizes: Sequence[int]
    loss: Literal["mse", "likelihood"]


class SoftOptions(TypedDict, total=False):
    """The temperature's hyper-parameters, of SAC's family."""

    alpha: float | Literal["auto"]
    initial_alpha: float
    target_entropy: float | Literal["auto"]


class SACOptions(OffPolicyOptions, SoftOptions, total=False):
    """SAC's hyper-parameters."""


class DDPGOptions(OffPolicyOptions, total=False):
    """DDPG's hyper-parameters."""

    exploration_noise: float


class TD3Options(DDPGOptions, total=False):
    """TD3's hyper-parameters."""

    policy_delay: int
    target_noise: float
    target_noise_clip: float


class REDQOptions(SACOptions, total=False):
    """REDQ's hyper-parameters."""

    num_critics: int
    subset_size: int


class TQCOptions(SACOptions, total=False):
    """TQC's hyper-parameters."""

    num_critics: int
    num_quantiles: int
    top_quantiles_to_drop_per_net: int
    critic_hidden_sizes: Sequence[int]


class DQNOptions(OffPolicyOptions, total=False):
    """DQN's hyper-parameters."""

    double: bool
    layer_norm: bool
    target_update_interval: int
    max_grad_norm: float | None
    epsilon_start: float
    epsilon_end: float
    epsilon_decay_steps: int


class HEROptions(TQCOptions, total=False):
    """HER's own hyper-parameters, and those of every algorithm that it can be given."""

    base_algo: str
    her_strategy: Literal["future", "final", "episode"]
    her_ratio: float
    exploration_noise: float
    policy_delay: int
    target_noise: float
    target_noise_clip: float
    subset_size: int


class ValueOptions(RunOptions, total=False):
    """Hyper-parameters of every offline learner of values."""

    batch_size: int
    learning_rate: float
    hidden_sizes: Sequence[int]
    gamma: float
    tau: float


class IQLOptions(ValueOptions, total=False):
    """IQL's hyper-parameters."""

    expectile: float
    beta: float
    weight_clip: float
    log_std_bounds: Sequence[float]


class AWACOptions(ValueOptions, total=False):
    """AWAC's hyper-parameters."""

    critic_hidden_sizes: Sequence[int]
    weight_decay: float
    temperature: float
    weighting: Literal["clip", "softmax"]
    weight_clip: float
    policy: Literal["tanh_mean", "squashed"]
    log_std_bounds: Sequence[float]


class TD3BCOptions(ValueOptions, total=False):
    """TD3+BC's hyper-parameters."""

    alpha: float
    exploration_noise: float
    policy_delay: int
    target_noise: float
    target_noise_clip: float


class CQLOptions(ValueOptions, SoftOptions, total=False):
    """CQL's hyper-parameters."""

    policy_learning_rate: float
    conservative_weight: float
    num_sampled_actions: int
    conservative_temperature: float
    lagrange_threshold: float | None
    backup_entropy: bool


class EDACOptions(ValueOptions, SoftOptions, total=False):
    """EDAC's hyper-parameters."""

    num_critics: int
    eta: float


class RLPDOptions(REDQOptions, total=False):
    """RLPD's hyper-parameters."""

    offline_batch_ratio: float
    offline_pretrain_updates: int
    random_play: bool
    layer_norm: bool
    backup_entropy: bool
