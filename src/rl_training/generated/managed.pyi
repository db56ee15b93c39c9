"""The managed classes. Written by `make generate`. Do not edit."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

from rl_training.api.managed import ManagedAlgorithm
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.training_loop import TrainResult

class DDPG(ManagedAlgorithm):
    """Deep Deterministic Policy Gradient (arXiv 1509.02971).

    Deterministic actor-critic with Gaussian exploration.

    >>> DDPG("Pendulum-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    DDPG options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 1): Critics in the ensemble; the target uses their minimum, the
            actor the first.
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 1,
        exploration_noise: float = 0.1,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_ddpg(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train DDPG from a config of that algorithm."""

class DQN(ManagedAlgorithm):
    """Deep Q-Network (arXiv 1312.5602).

    Q-learning with a target network; Double DQN as an option.

    >>> DQN("CartPole-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    DQN options:
        batch_size (default 128): Transitions in one gradient update.
        learning_rate (default 0.00025): Adam's step size.
        hidden_sizes (default (120, 84)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 1.0): Rate τ of each update of the target network; 1 copies.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 10000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 1000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 10): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        double (default False): Let the online network choose the target's action (Double DQN).
        layer_norm (default False): Normalize the hidden layers before each ReLU.
        target_update_interval (default 50): Gradient updates between updates of the target
            network; 1 for soft ones, by a small `tau`.
        max_grad_norm (default 10.0): Greatest Euclidean length of the gradient, which is
            shortened to it; None for no limit.
        epsilon_start (default 1.0): Probability ε of a random action at step 0.
        epsilon_end (default 0.05): Probability ε from step `epsilon_decay_steps` on.
        epsilon_decay_steps (default 25000): Environment steps over which ε decays linearly.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 128,
        learning_rate: float = 0.00025,
        hidden_sizes: Sequence[int] = (120, 84),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 1.0,
        n_step: int = 1,
        buffer_capacity: int = 10000,
        learning_starts: int = 1000,
        train_frequency: int = 10,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        double: bool = False,
        layer_norm: bool = False,
        target_update_interval: int = 50,
        max_grad_norm: float | None = 10.0,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_decay_steps: int = 25000,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_dqn(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train DQN from a config of that algorithm."""

class HER(ManagedAlgorithm):
    """Hindsight Experience Replay (arXiv 1707.01495).

    Relabels goals with achieved ones, for any online learner.

    >>> HER("rl_training/PointGoal-v0").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    HER options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): Always uniform: priorities would be those of the original
            goals.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.
        base_algo (default 'sac'): The learner, an online one for continuous actions; its
            options are this run's, too.
        her_strategy (default 'future'): Which achieved goals of its episode replace a
            transition's goal.
        her_ratio (default 0.8): Share of transitions that get another goal; 0 for none.

    With base_algo='ddpg':
        num_critics (default 1): Critics in the ensemble; the target uses their minimum, the
            actor the first.
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].

    With base_algo='redq':
        gradient_updates_per_step (default 20): Updates in each round, G; actor and temperature
            move in the last one.
        num_critics (default 10): Critics in the ensemble, N.
        subset_size (default 2): Target critics whose minimum is used, M ≤ N; drawn anew for
            each update.

    With base_algo='td3':
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].
        policy_delay (default 2): Critic updates for each update of actor and targets.
        target_noise (default 0.2): Deviation of the noise that smooths the target's action, in
            units of [−1, 1].
        target_noise_clip (default 0.5): Largest size of that noise.

    With base_algo='tqc':
        num_critics (default 5): Critics in the ensemble, N.
        num_quantiles (default 25): Quantiles of each critic, M.
        top_quantiles_to_drop_per_net (default 2): Largest quantiles left out of the pooled
            target for each critic, d; below `num_quantiles`.
        critic_hidden_sizes (default (512, 512, 512)): Widths of the critics' hidden layers.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        base_algo: str = "sac",
        her_strategy: Literal["future", "final", "episode"] = "future",
        her_ratio: float = 0.8,
        exploration_noise: float = ...,
        subset_size: int = ...,
        policy_delay: int = ...,
        target_noise: float = ...,
        target_noise_clip: float = ...,
        num_quantiles: int = ...,
        top_quantiles_to_drop_per_net: int = ...,
        critic_hidden_sizes: Sequence[int] = ...,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_her(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train HER from a config of that algorithm."""

class REDQ(ManagedAlgorithm):
    """Randomized Ensembled Double Q-learning (arXiv 2101.05982).

    SAC with many critics, random target subsets, many updates per step.

    >>> REDQ("Pendulum-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    REDQ options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 20): Updates in each round, G; actor and temperature
            move in the last one.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 10): Critics in the ensemble, N.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.
        subset_size (default 2): Target critics whose minimum is used, M ≤ N; drawn anew for
            each update.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 20,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        subset_size: int = 2,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_redq(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train REDQ from a config of that algorithm."""

class SAC(ManagedAlgorithm):
    """Soft Actor-Critic (arXiv 1812.05905).

    Entropy-regularized actor-critic with a learned temperature.

    >>> SAC("Pendulum-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    SAC options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_sac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train SAC from a config of that algorithm."""

class TD3(ManagedAlgorithm):
    """Twin Delayed DDPG (arXiv 1802.09477).

    Twin critics, smoothed targets and a delayed deterministic policy.

    >>> TD3("Pendulum-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    TD3 options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble; the target uses their minimum.
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].
        policy_delay (default 2): Critic updates for each update of actor and targets.
        target_noise (default 0.2): Deviation of the noise that smooths the target's action, in
            units of [−1, 1].
        target_noise_clip (default 0.5): Largest size of that noise.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_td3(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TD3 from a config of that algorithm."""

class TQC(ManagedAlgorithm):
    """Truncated Quantile Critics (arXiv 2005.04269).

    SAC with distributional critics whose largest quantiles are dropped.

    >>> TQC("Pendulum-v1").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    TQC options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 1): Updates in each round.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 5): Critics in the ensemble, N.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.
        num_quantiles (default 25): Quantiles of each critic, M.
        top_quantiles_to_drop_per_net (default 2): Largest quantiles left out of the pooled
            target for each critic, d; below `num_quantiles`.
        critic_hidden_sizes (default (512, 512, 512)): Widths of the critics' hidden layers.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        networks: dict[str, Any] = {},
        num_critics: int = 5,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_quantiles: int = 25,
        top_quantiles_to_drop_per_net: int = 2,
        critic_hidden_sizes: Sequence[int] = (512, 512, 512),
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_tqc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TQC from a config of that algorithm."""

class AWAC(ManagedAlgorithm):
    """Advantage-Weighted Actor-Critic (arXiv 2006.09359).

    Twin critics, and imitation weighted by the advantage.

    >>> AWAC("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    AWAC options:
        batch_size (default 1024): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256, 256, 256)): Widths of the actor's hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble.
        weight_clip (default 100.0): Largest weight of a transition in the actor's loss.
        log_std_bounds (default (-6.0, 0.0)): Least and greatest log σ of `policy: tanh_mean`,
            in ascending order.
        critic_hidden_sizes (default (256, 256)): Widths of the critics' hidden layers.
        weight_decay (default 0.0001): Weight decay in the actor's gradient.
        temperature (default 1.0): Temperature λ that advantages are divided by.
        weighting (default 'clip'): Weights exp(A/λ) up to `weight_clip`, or a softmax over the
            batch.
        policy (default 'tanh_mean'): The actor: a Gaussian around a tanh mean, or SAC's
            squashed one.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 1024,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256, 256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        weight_clip: float = 100.0,
        log_std_bounds: Sequence[float] = (-6.0, 0.0),
        critic_hidden_sizes: Sequence[int] = (256, 256),
        weight_decay: float = 0.0001,
        temperature: float = 1.0,
        weighting: Literal["clip", "softmax"] = "clip",
        policy: Literal["tanh_mean", "squashed"] = "tanh_mean",
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_awac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train AWAC from a config of that algorithm."""

class BC(ManagedAlgorithm):
    """Behavior Cloning (Pomerleau, 1988).

    Supervised learning of the recorded actions.

    >>> BC("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    BC options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        loss (default 'mse'): Squared error of one action, or the likelihood of a Gaussian
            policy.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        networks: dict[str, Any] = {},
        loss: Literal["mse", "likelihood"] = "mse",
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_bc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train BC from a config of that algorithm."""

class CQL(ManagedAlgorithm):
    """Conservative Q-Learning (arXiv 2006.04779).

    SAC whose critics are pushed down on actions outside the dataset.

    >>> CQL("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    CQL options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.
        policy_learning_rate (default 0.0001): Adam's step size for actor and temperature;
            `learning_rate` is the critics'.
        conservative_weight (default 5.0): Weight of the conservative term beside the squared
            error; the authors also use 10.
        num_sampled_actions (default 10): Actions of each of the three kinds in the log-sum-exp,
            K.
        conservative_temperature (default 1.0): Temperature T of the log-sum-exp.
        lagrange_threshold (default None): Weighted gap that a learned multiplier holds; None
            for the fixed weight alone.
        backup_entropy (default False): Keep −α log π in the critics' target.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        policy_learning_rate: float = 0.0001,
        conservative_weight: float = 5.0,
        num_sampled_actions: int = 10,
        conservative_temperature: float = 1.0,
        lagrange_threshold: float | None = None,
        backup_entropy: bool = False,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_cql(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train CQL from a config of that algorithm."""

class EDAC(ManagedAlgorithm):
    """Ensemble-Diversified Actor-Critic (arXiv 2110.01548).

    SAC with the minimum over many critics that are kept diverse.

    >>> EDAC("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    EDAC options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 10): Critics in the ensemble, N.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|,
            minus the number of action dimensions.
        eta (default 1.0): Weight η of the diversity term; 0 is SAC-N.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        eta: float = 1.0,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_edac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train EDAC from a config of that algorithm."""

class IQL(ManagedAlgorithm):
    """Implicit Q-Learning (arXiv 2110.06169).

    Expectile values and advantage-weighted imitation of the data.

    >>> IQL("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    IQL options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble.
        weight_clip (default 100.0): Largest weight of a transition in the actor's loss.
        log_std_bounds (default (-5.0, 2.0)): Least and greatest log σ of the Gaussian around a
            tanh mean, in ascending order.
        expectile (default 0.7): Expectile of Q(s, ·) over the dataset that V(s) aims for.
        beta (default 3.0): Inverse temperature β of the advantages.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        weight_clip: float = 100.0,
        log_std_bounds: Sequence[float] = (-5.0, 2.0),
        expectile: float = 0.7,
        beta: float = 3.0,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_iql(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train IQL from a config of that algorithm."""

class ReBRAC(ManagedAlgorithm):
    """Revisited Behavior-Regularized Actor-Critic (arXiv 2305.09836).

    TD3+BC with separate penalties of the actor and the critics.

    >>> ReBRAC("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    ReBRAC options:
        batch_size (default 1024): Transitions in one gradient update.
        learning_rate (default 0.001): Adam's step size, for every network.
        hidden_sizes (default (256, 256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble; the target uses their minimum.
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].
        policy_delay (default 2): Critic updates for each update of actor and targets.
        target_noise (default 0.2): Deviation of the noise that smooths the target's action, in
            units of [−1, 1].
        target_noise_clip (default 0.5): Largest size of that noise.
        actor_penalty (default 0.01): Weight β₁ of the squared distance from the dataset's
            action in the actor's loss.
        critic_penalty (default 0.01): Weight β₂ of the squared distance from the dataset's next
            action in the critics' target.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 1024,
        learning_rate: float = 0.001,
        hidden_sizes: Sequence[int] = (256, 256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        actor_penalty: float = 0.01,
        critic_penalty: float = 0.01,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_rebrac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train ReBRAC from a config of that algorithm."""

class TD3BC(ManagedAlgorithm):
    """TD3 with Behavior Cloning (arXiv 2106.06860).

    TD3 whose actor also imitates the dataset.

    >>> TD3BC("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    TD3BC options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 2): Critics in the ensemble; the target uses their minimum.
        exploration_noise (default 0.1): Deviation of the Gaussian noise on collected actions,
            in units of [−1, 1].
        policy_delay (default 2): Critic updates for each update of actor and targets.
        target_noise (default 0.2): Deviation of the noise that smooths the target's action, in
            units of [−1, 1].
        target_noise_clip (default 0.5): Largest size of that noise.
        alpha (default 2.5): Weight α of the value against the imitation.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str | None = None,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        alpha: float = 2.5,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_td3_bc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TD3BC from a config of that algorithm."""

class RLPD(ManagedAlgorithm):
    """RL with Prior Data (arXiv 2302.02948).

    REDQ with LayerNorm critics on batches of recorded and new data.

    >>> RLPD("Pendulum-v1", dataset_kind="npz", dataset_path="data.npz").learn(20_000).evaluate()

    See docs/configuration.md for details of the options.

    RLPD options:
        batch_size (default 256): Transitions in one gradient update.
        learning_rate (default 0.0003): Adam's step size, for every network.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam by the name of each optimizer, or of `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ.
        tau (default 0.005): Polyak rate τ of the target networks.
        n_step (default 1): Rewards that a target sums up before it bootstraps, fewer where an
            episode ends.
        buffer_capacity (default 1000000): Transitions that the replay keeps; the oldest are
            dropped.
        learning_starts (default 5000): Environment steps of uniform random actions before the
            first update.
        train_frequency (default 1): Collected transitions between rounds of updates.
        gradient_updates_per_step (default 20): Updates in each round, G; actor and temperature
            move in the last one.
        replay (default 'uniform'): How the replay draws transitions: all alike, or by the size
            of their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 draws all transitions
            alike.
        importance_exponent (default 0.4): First exponent β of the importance weights; it grows
            to 1 over the run's budget.
        priority_epsilon (default 1e-06): Added to the size of every TD error, so that each
            transition can be drawn.
        normalize_observations (default False): Standardize observations by the running moments
            of all that were collected.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        offline_batch_ratio (default 0.5): Share of the dataset's rows in every batch, rounded
            to whole rows, a half up.
        offline_pretrain_updates (default 0): Updates on the dataset alone before the first
            environment step; intervals count them.
        random_play (default True): Play at random until `learning_starts`; otherwise the policy
            plays from the first step.
        networks (default {}): Trunk and options of each network by its name, or of `all`
            (docs/configuration.md).
        num_critics (default 10): Critics in the ensemble, N.
        alpha (default 'auto'): Temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Entropy that a learned α aims for; `auto` is −|A|/2.
        subset_size (default 2): Target critics whose minimum is used, M ≤ N; drawn anew for
            each update.
        backup_entropy (default True): Keep −α log π in the critics' target.
        layer_norm (default True): Normalize the critics' hidden layers.

    Run options:
        seed (default 0): Seed of all random streams.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Where recorded data comes from; None for none.
        dataset_path (default None): The file of an npz, pt, hdf5 or starter dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Let Minari download a missing dataset.
        dataset_size (default 10000): Transitions of a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor on every reward.
        reward_shift (default 0.0): Added to every reward after scaling.
        reward_clip_min (default None): Least reward, after scale and shift.
        reward_clip_max (default None): Greatest reward, after scale and shift.
        return_scaling (default False): Scale a dataset's rewards by 1000 over its range of
            returns.
        normalize_states (default False): Standardize observations by the dataset's mean and
            deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once an
            epoch.
        num_epochs (default None): The budget as passes over the training rows.
        validation_fraction (default None): Share of the rows held out, in whole episodes; None:
            0.05 if env_id is None.
        action_low (default None): Least actions of the data, where no environment tells.
        action_high (default None): Greatest actions of the data, where no environment tells.

    Control options:
        eval_interval (default 5000): Steps between evaluations; 0 to evaluate only at the end.
        early_stopping (default None): When to stop before total_timesteps; None to disable.
        learning_rate_schedule (default 'constant'): Learning-rate schedule: constant, linear or
            cosine.
        learning_rate_warmup (default 0): Steps of linear warm-up from 0.
        learning_rate_final (default 0.0): Fraction of the learning rate at the end of the
            schedule.
        schedule_horizon (default None): Step at which the schedule ends; by default,
            total_timesteps of the first run.
        keep_checkpoints (default 3): Number of newest checkpoints to keep, in addition to the
            best.
        tensorboard (default True): Write TensorBoard files in addition to metrics.jsonl.
        num_threads (default None): Number of CPU threads; None for OMP_NUM_THREADS or a default
            for this machine.
        engine (default 'auto'): Execution of updates: eager, compiled or cuda_graph; auto
            chooses by device and budget.
        matmul_precision (default 'high'): Precision of float32 matrix products on a GPU:
            highest, or high for TF32.
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env_id: str,
        *,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 20,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = False,
        offline_batch_ratio: float = 0.5,
        offline_pretrain_updates: int = 0,
        random_play: bool = True,
        networks: dict[str, Any] = {},
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        subset_size: int = 2,
        backup_entropy: bool = True,
        layer_norm: bool = True,
        seed: int = 0,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "minari", "starter"] | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        reward_clip_min: float | None = None,
        reward_clip_max: float | None = None,
        return_scaling: bool = False,
        normalize_states: bool = False,
        sampling: Literal["replacement", "epochs"] = "replacement",
        num_epochs: int | None = None,
        validation_fraction: float | None = None,
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        tensorboard: bool = True,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_rlpd(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train RLPD from a config of that algorithm."""
