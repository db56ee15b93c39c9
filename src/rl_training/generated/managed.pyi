"""The managed classes. Written by `make generate`. Do not edit."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

from rl_training.api.managed import ManagedAlgorithm
from rl_training.data.given_data import DatasetLike
from rl_training.envs import EnvLike
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.training_loop import TrainResult

class CrossQ(ManagedAlgorithm):
    """CrossQ (arXiv 1902.05605).

    SAC with batch renormalization instead of target networks.

    >>> CrossQ("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    CrossQ options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.001): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Has no effect: CrossQ has no target networks.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        critic_hidden_sizes (default (2048, 2048)): Widths of the critics' hidden layers.
        policy_delay (default 3): Number of critic updates per update of the actor and the
            temperature.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.001,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        critic_hidden_sizes: Sequence[int] = (2048, 2048),
        policy_delay: int = 3,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_crossq(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train CrossQ from a config with `algo: crossq`."""

class DDPG(ManagedAlgorithm):
    """Deep Deterministic Policy Gradient (arXiv 1509.02971).

    Deterministic actor-critic with Gaussian exploration.

    >>> DDPG("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    DDPG options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 1): Number of critics; the target uses their minimum, the actor
            only the first.
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 1,
        exploration_noise: float = 0.1,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_ddpg(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train DDPG from a config with `algo: ddpg`."""

class DQN(ManagedAlgorithm):
    """Deep Q-Network (arXiv 1312.5602).

    Q-learning with a target network; Double DQN, dueling streams and quantiles as options.

    >>> DQN("CartPole-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    DQN options:
        batch_size (default 128): Number of transitions in each gradient update.
        learning_rate (default 0.00025): Learning rate of Adam; a schedule scales it.
        hidden_sizes (default (120, 84)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 1.0): Polyak rate τ of each target update; 1 copies the network.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 10000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 1000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 10): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        double (default False): Choose the target's action with the online network (Double DQN).
        dueling (default False): Estimate the value of a state and the advantages of its actions
            in separate streams.
        num_quantiles (default 1): Quantiles of each action's return, as in QR-DQN; 1 learns the
            expected return only.
        layer_norm (default False): Apply LayerNorm to every hidden layer, before its
            activation.
        target_update_interval (default 50): Gradient updates between target updates; use 1 with
            a small `tau` for soft updates.
        max_grad_norm (default 10.0): Clip the gradient to this Euclidean norm; None disables
            clipping.
        epsilon_start (default 1.0): Initial probability ε of a random action.
        epsilon_end (default 0.05): Final probability ε of a random action, from step
            `epsilon_decay_steps` on.
        epsilon_decay_steps (default 25000): Environment steps over which ε decays linearly.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        double: bool = False,
        dueling: bool = False,
        num_quantiles: int = 1,
        layer_norm: bool = False,
        target_update_interval: int = 50,
        max_grad_norm: float | None = 10.0,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_decay_steps: int = 25000,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_dqn(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train DQN from a config with `algo: dqn`."""

class FlashSAC(ManagedAlgorithm):
    """FlashSAC (arXiv 2604.04539).

    SAC with categorical critics, BatchNorm and unit-norm weights.

    >>> FlashSAC("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    FlashSAC options:
        batch_size (default 512): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (128, 128)): Width of each residual block of the actor; all are
            equal.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.01): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 10000): Environment steps with uniform random actions before
            the first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default True): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default 5.0): The critics' bins span ± this, and normalized rewards keep
            discounted returns within it.
        exploration_hold (default 16): Longest time that exploration keeps its noise, in steps;
            1 draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 0.01): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        critic_hidden_sizes (default (256, 256)): Width of each residual block of the critics;
            all are equal.
        num_bins (default 101): Number of bins of the critics' distributions.
        policy_delay (default 2): Number of critic updates per update of the actor and the
            temperature.
        target_deviation (default 0.15): With `target_entropy: auto`: the target is the entropy
            of a Gaussian with this deviation.
        decay_steps (default 1000000): Steps of an optimizer over which its learning rate
            decays, with a cosine.
        decay_final (default 0.5): Fraction of the learning rate after the decay.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        batch_size: int = 512,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (128, 128),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.01,
        n_step: int = 1,
        buffer_capacity: int = 1000000,
        learning_starts: int = 10000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        replay: Literal["uniform", "prioritized"] = "uniform",
        priority_exponent: float = 0.6,
        importance_exponent: float = 0.4,
        priority_epsilon: float = 1e-06,
        normalize_observations: bool = False,
        normalize_rewards: bool = True,
        return_bound: float = 5.0,
        exploration_hold: int = 16,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 0.01,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        critic_hidden_sizes: Sequence[int] = (256, 256),
        num_bins: int = 101,
        policy_delay: int = 2,
        target_deviation: float = 0.15,
        decay_steps: int = 1000000,
        decay_final: float = 0.5,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_flash_sac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train FlashSAC from a config with `algo: flash_sac`."""

class HER(ManagedAlgorithm):
    """Hindsight Experience Replay (arXiv 1707.01495).

    Relabels goals with achieved goals, for any online learner.

    >>> HER("rl_training/PointGoal-v0").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    HER options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): Always uniform, since priorities would refer to the original
            goals.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        base_algo (default 'sac'): The learner: any online algorithm for continuous actions; its
            options are accepted too.
        her_strategy (default 'future'): Which achieved goals of the episode replace a
            transition's goal.
        her_ratio (default 0.8): Share of transitions that are relabeled with another goal; 0
            relabels none.

    With base_algo='crossq':
        learning_rate (default 0.001): Learning rate of Adam, for every network; a schedule
            scales it.
        critic_hidden_sizes (default (2048, 2048)): Widths of the critics' hidden layers.
        policy_delay (default 3): Number of critic updates per update of the actor and the
            temperature.

    With base_algo='ddpg':
        num_critics (default 1): Number of critics; the target uses their minimum, the actor
            only the first.
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].

    With base_algo='flash_sac':
        batch_size (default 512): Number of transitions in each gradient update.
        hidden_sizes (default (128, 128)): Width of each residual block of the actor; all are
            equal.
        tau (default 0.01): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        learning_starts (default 10000): Environment steps with uniform random actions before
            the first update.
        normalize_rewards (default True): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default 5.0): The critics' bins span ± this, and normalized rewards keep
            discounted returns within it.
        exploration_hold (default 16): Longest time that exploration keeps its noise, in steps;
            1 draws new noise in each step.
        initial_alpha (default 0.01): Initial value of a learned α.
        critic_hidden_sizes (default (256, 256)): Width of each residual block of the critics;
            all are equal.
        num_bins (default 101): Number of bins of the critics' distributions.
        policy_delay (default 2): Number of critic updates per update of the actor and the
            temperature.
        target_deviation (default 0.15): With `target_entropy: auto`: the target is the entropy
            of a Gaussian with this deviation.
        decay_steps (default 1000000): Steps of an optimizer over which its learning rate
            decays, with a cosine.
        decay_final (default 0.5): Fraction of the learning rate after the decay.

    With base_algo='redq':
        gradient_updates_per_step (default 20): Number G of updates in each round; the last one
            also updates actor and temperature.
        num_critics (default 10): Number N of critics.
        subset_size (default 2): Number M ≤ N of target critics whose minimum is used, drawn at
            random in each update.

    With base_algo='td3':
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].
        policy_delay (default 2): Number of critic updates for each update of the actor and the
            targets.
        target_noise (default 0.2): Standard deviation of the noise on the target's action,
            which is in [−1, 1].
        target_noise_clip (default 0.5): Clip the noise on the target's action to ± this value.

    With base_algo='tqc':
        num_critics (default 5): Number N of critics.
        num_quantiles (default 25): Number M of quantiles per critic.
        top_quantiles_to_drop_per_net (default 2): Number of largest target quantiles to drop
            per critic; less than `num_quantiles`.
        critic_hidden_sizes (default (512, 512, 512)): Widths of the critics' hidden layers.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        base_algo: str = "sac",
        her_strategy: Literal["future", "final", "episode"] = "future",
        her_ratio: float = 0.8,
        critic_hidden_sizes: Sequence[int] = ...,
        policy_delay: int = ...,
        exploration_noise: float = ...,
        num_bins: int = ...,
        target_deviation: float = ...,
        decay_steps: int = ...,
        decay_final: float = ...,
        subset_size: int = ...,
        target_noise: float = ...,
        target_noise_clip: float = ...,
        num_quantiles: int = ...,
        top_quantiles_to_drop_per_net: int = ...,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_her(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train HER from a config with `algo: her`."""

class REDQ(ManagedAlgorithm):
    """Randomized Ensembled Double Q-learning (arXiv 2101.05982).

    SAC with many critics, random target subsets and many updates.

    >>> REDQ("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    REDQ options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 20): Number G of updates in each round; the last one
            also updates actor and temperature.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 10): Number N of critics.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        subset_size (default 2): Number M ≤ N of target critics whose minimum is used, drawn at
            random in each update.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        subset_size: int = 2,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_redq(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train REDQ from a config with `algo: redq`."""

class SAC(ManagedAlgorithm):
    """Soft Actor-Critic (arXiv 1812.05905).

    Entropy-regularized actor-critic with a learned temperature.

    >>> SAC("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    SAC options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_sac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train SAC from a config with `algo: sac`."""

class TD3(ManagedAlgorithm):
    """Twin Delayed DDPG (arXiv 1802.09477).

    Twin critics, smoothed targets and a delayed deterministic policy.

    >>> TD3("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    TD3 options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics; the target uses their minimum.
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].
        policy_delay (default 2): Number of critic updates for each update of the actor and the
            targets.
        target_noise (default 0.2): Standard deviation of the noise on the target's action,
            which is in [−1, 1].
        target_noise_clip (default 0.5): Clip the noise on the target's action to ± this value.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_td3(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TD3 from a config with `algo: td3`."""

class TQC(ManagedAlgorithm):
    """Truncated Quantile Critics (arXiv 2005.04269).

    SAC with distributional critics, dropping the largest quantiles.

    >>> TQC("Pendulum-v1").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    TQC options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 1): Number of gradient updates in each round.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 5): Number N of critics.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        num_quantiles (default 25): Number M of quantiles per critic.
        top_quantiles_to_drop_per_net (default 2): Number of largest target quantiles to drop
            per critic; less than `num_quantiles`.
        critic_hidden_sizes (default (512, 512, 512)): Widths of the critics' hidden layers.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 5,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        num_quantiles: int = 25,
        top_quantiles_to_drop_per_net: int = 2,
        critic_hidden_sizes: Sequence[int] = (512, 512, 512),
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_tqc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TQC from a config with `algo: tqc`."""

class AWAC(ManagedAlgorithm):
    """Advantage-Weighted Actor-Critic (arXiv 2006.09359).

    Twin critics and advantage-weighted imitation of the dataset.

    >>> AWAC("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    AWAC options:
        batch_size (default 1024): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256, 256, 256)): Widths of the actor's hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        weight_clip (default 100.0): Upper bound on a transition's weight in the actor loss; 100
            is common.
        log_std_bounds (default (-6.0, 0.0)): Lower and upper bounds of log σ of `policy:
            tanh_mean`.
        critic_hidden_sizes (default (256, 256)): Widths of the critics' hidden layers.
        weight_decay (default 0.0001): L2 weight decay of the actor, added to its gradient.
        temperature (default 1.0): Temperature λ that divides the advantages; lower values
            imitate more selectively.
        weighting (default 'clip'): Weights of the transitions: exp(A/λ) up to `weight_clip`, or
            a softmax over the batch.
        policy (default 'tanh_mean'): Actor: a Gaussian around a tanh mean, or SAC's squashed
            Gaussian.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 1024,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256, 256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        weight_clip: float = 100.0,
        log_std_bounds: Sequence[float] = (-6.0, 0.0),
        critic_hidden_sizes: Sequence[int] = (256, 256),
        weight_decay: float = 0.0001,
        temperature: float = 1.0,
        weighting: Literal["clip", "softmax"] = "clip",
        policy: Literal["tanh_mean", "squashed"] = "tanh_mean",
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_awac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train AWAC from a config with `algo: awac`."""

class BC(ManagedAlgorithm):
    """Behavior Cloning (Pomerleau, 1988).

    Supervised learning of the recorded actions.

    >>> BC("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    BC options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        loss (default 'mse'): Squared error of a deterministic action (`mse`), or likelihood of
            a Gaussian policy.  Discrete actions always use the likelihood, of a categorical
            policy.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        loss: Literal["mse", "likelihood"] = "mse",
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_bc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train BC from a config with `algo: bc`."""

class CQL(ManagedAlgorithm):
    """Conservative Q-Learning (arXiv 2006.04779).

    SAC with critics pushed down on actions outside the dataset.

    >>> CQL("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    CQL options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        policy_learning_rate (default 0.0001): Learning rate of the actor and the temperature;
            the critics use `learning_rate`.
        conservative_weight (default 5.0): Weight of the conservative term relative to the
            squared error; the authors use 5 and 10.
        num_sampled_actions (default 10): Number K of sampled actions of each of the three kinds
            in the log-sum-exp.
        conservative_temperature (default 1.0): Temperature T of the log-sum-exp.
        lagrange_threshold (default None): Threshold of the weighted gap for a learned
            multiplier; None uses a fixed weight.
        backup_entropy (default False): Include the entropy term −α log π in the critics'
            target.
        epsilon (default 0.05): Probability of a random action while fine-tuning with discrete
            actions.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
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
        epsilon: float = 0.05,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_cql(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train CQL from a config with `algo: cql`."""

class EDAC(ManagedAlgorithm):
    """Ensemble-Diversified Actor-Critic (arXiv 2110.01548).

    SAC with the minimum over a large, diversified ensemble of critics.

    >>> EDAC("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    EDAC options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 10): Number N of critics; the paper uses 10 to 50.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A| for |A|
            continuous action values.
        eta (default 1.0): Weight η of the diversity term; 0 gives SAC-N.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        eta: float = 1.0,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_edac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train EDAC from a config with `algo: edac`."""

class IQL(ManagedAlgorithm):
    """Implicit Q-Learning (arXiv 2110.06169).

    Expectile values and advantage-weighted imitation of the data.

    >>> IQL("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    IQL options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics in the ensemble.
        weight_clip (default 100.0): Upper bound on a transition's weight in the actor loss; 100
            is common.
        log_std_bounds (default (-5.0, 2.0)): Lower and upper bounds of log σ of the Gaussian
            around a tanh mean.
        expectile (default 0.7): Expectile of Q(s, ·) over the dataset that V(s) estimates; 0.5
            gives the mean.
        beta (default 3.0): Inverse temperature β of the advantages; higher values imitate more
            selectively.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        weight_clip: float = 100.0,
        log_std_bounds: Sequence[float] = (-5.0, 2.0),
        expectile: float = 0.7,
        beta: float = 3.0,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_iql(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train IQL from a config with `algo: iql`."""

class ReBRAC(ManagedAlgorithm):
    """Revisited Behavior-Regularized Actor-Critic (arXiv 2305.09836).

    TD3+BC with separate penalties for the actor and the critics.

    >>> ReBRAC("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    ReBRAC options:
        batch_size (default 1024): Number of transitions in each gradient update.
        learning_rate (default 0.001): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics; the target uses their minimum.
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].
        policy_delay (default 2): Number of critic updates for each update of the actor and the
            targets.
        target_noise (default 0.2): Standard deviation of the noise on the target's action,
            which is in [−1, 1].
        target_noise_clip (default 0.5): Clip the noise on the target's action to ± this value.
        actor_penalty (default 0.01): Weight β₁ of the squared distance to the dataset's action
            in the actor loss.
        critic_penalty (default 0.01): Weight β₂ of the squared distance to the dataset's next
            action in the critics' target.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 1024,
        learning_rate: float = 0.001,
        hidden_sizes: Sequence[int] = (256, 256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        actor_penalty: float = 0.01,
        critic_penalty: float = 0.01,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_rebrac(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train ReBRAC from a config with `algo: rebrac`."""

class TD3BC(ManagedAlgorithm):
    """TD3 with Behavior Cloning (arXiv 2106.06860).

    TD3 with an imitation term in the actor loss.

    >>> TD3BC("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    TD3BC options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 2): Number of critics; the target uses their minimum.
        exploration_noise (default 0.1): Standard deviation of the Gaussian noise on collected
            actions, which are in [−1, 1].
        policy_delay (default 2): Number of critic updates for each update of the actor and the
            targets.
        target_noise (default 0.2): Standard deviation of the noise on the target's action,
            which is in [−1, 1].
        target_noise_clip (default 0.5): Clip the noise on the target's action to ± this value.
        alpha (default 2.5): Weight α of the value term relative to imitation; higher values
            trust the critics more.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.0003,
        hidden_sizes: Sequence[int] = (256, 256),
        optimizers: dict[str, Any] = {},
        gamma: float = 0.99,
        tau: float = 0.005,
        n_step: int = 1,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 2,
        exploration_noise: float = 0.1,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        alpha: float = 2.5,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_td3_bc(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train TD3BC from a config with `algo: td3_bc`."""

class RLPD(ManagedAlgorithm):
    """RL with Prior Data (arXiv 2302.02948).

    REDQ with LayerNorm critics on mixed batches of recorded and new data.

    >>> RLPD("Pendulum-v1", dataset="data.npz").learn(20_000).evaluate()

    See docs/environments.md for environments and docs/configuration.md for the options.

    Environments:
        env: An environment id, a gymnasium.Env, a class or a function that makes one, or a
            Gymnasium vector environment.
        env_id: The same as env, for an id.
        eval_env: The environment to evaluate in (default: a new one like env).

    dataset: Recorded data: a path, a Minari id, a mapping of arrays, a TransitionDataset or a
        Minari dataset.

    RLPD options:
        batch_size (default 256): Number of transitions in each gradient update.
        learning_rate (default 0.0003): Learning rate of Adam, for every network; a schedule
            scales it.
        hidden_sizes (default (256, 256)): Widths of the hidden layers.
        optimizers (default {}): Options of Adam for each optimizer by name, or for `all`
            (docs/configuration.md).
        gamma (default 0.99): Discount factor γ of future rewards.
        tau (default 0.005): Polyak rate τ of the target networks: target ← (1 − τ) target + τ
            online.
        n_step (default 1): Number of rewards in a target before it bootstraps; fewer at the end
            of an episode.
        buffer_capacity (default 1000000): Capacity of the replay buffer in transitions; the
            oldest are overwritten.
        learning_starts (default 5000): Environment steps with uniform random actions before the
            first update.
        train_frequency (default 1): Transitions to collect between rounds of updates.
        gradient_updates_per_step (default 20): Number G of updates in each round; the last one
            also updates actor and temperature.
        replay (default 'uniform'): How transitions are sampled: uniformly, or by the size of
            their TD errors.
        priority_exponent (default 0.6): Exponent α of the priorities; 0 samples uniformly.
        importance_exponent (default 0.4): Initial exponent β of the importance weights; it
            grows to 1 over the run's budget.
        priority_epsilon (default 1e-06): Constant added to every absolute TD error, so that
            each transition can be sampled.
        normalize_observations (default False): Standardize observations with running statistics
            of the collected observations.
        normalize_rewards (default False): Divide rewards by the running standard deviation of
            the discounted return.
        return_bound (default None): With `normalize_rewards`: largest absolute discounted
            return after the division.
        exploration_hold (default 1): Longest time that exploration keeps its noise, in steps; 1
            draws new noise in each step.
        offline_batch_ratio (default 0.5): Share of dataset rows in every batch, rounded to
            whole rows (half up).
        offline_pretrain_updates (default 0): Updates on the dataset alone before the first
            environment step; they count as steps.
        random_play (default True): Take random actions until `learning_starts`; otherwise the
            policy acts from the start.
        networks (default {}): Trunk and options of each network by name, or of `all`
            (docs/configuration.md).
        augmentation (default 'none'): Shift the images of every batch at random, as in DrQ
            (docs/pixels.md).
        augmentation_pad (default 4): Largest shift of an image in each direction, in pixels.
        num_critics (default 10): Number N of critics.
        alpha (default 'auto'): Entropy temperature α: a fixed number, or `auto` to learn it.
        initial_alpha (default 1.0): Initial value of a learned α.
        target_entropy (default 'auto'): Target entropy of a learned α; `auto` is −|A|/2 for |A|
            action dimensions.
        entropy_fraction (default 0.5): Target entropy of discrete actions with `target_entropy:
            auto`, as a fraction of log |A|.
        subset_size (default 2): Number M ≤ N of target critics whose minimum is used, drawn at
            random in each update.
        backup_entropy (default True): Include the entropy term −α log π in the critics' target.
        layer_norm (default True): Apply LayerNorm to the critics' hidden layers, before their
            activation.

    Run options:
        seed (default 0): Seed of all random streams.
        seeds (default None): Instead of `seed`: several seeds, each of which is a run; a count
            or a list.
        output_dir (default 'runs'): Folder in which run folders are created.
        device (default 'auto'): auto, cpu, cuda, cuda:N or mps.
        num_envs (default 1): Number of training environments, which are stepped together.
        eval_episodes (default 10): Number of episodes of each evaluation.
        checkpoint_interval (default 10000): Steps between checkpoints; the start, a new best
            and the end are always saved.
        log_interval (default 1000): Steps between log entries.
        tags (default ()): Labels of the run.
        logging (default {}): Destinations of metrics in addition to metrics.jsonl.
        env_kwargs (default {}): `vectorization`, `wrappers`, and arguments of gymnasium.make.

    Data and reward options:
        dataset_kind (default None): Format of the recorded data; by default, that of
            dataset_path or dataset_id.
        dataset_path (default None): A .npz, .pt or .hdf5 file, a folder of .npy files, or the
            folder of a Minari dataset.
        dataset_id (default None): The id of a Minari dataset.
        dataset_download (default False): Download a Minari dataset if it is missing.
        dataset_memory (default 'auto'): Load the data, or read rows from memory-mapped files as
            needed; auto maps large files.
        dataset_size (default 10000): Number of transitions in a random dataset.
        dataset_seed (default 0): Seed of a random dataset.
        reward_scale (default 1.0): Factor by which every reward is multiplied.
        reward_shift (default 0.0): Constant added to every reward after scaling.
        reward_clip_min (default None): Smallest reward after scaling and shifting.
        reward_clip_max (default None): Largest reward after scaling and shifting.
        return_scaling (default False): Multiply the dataset's rewards by 1000 / (largest return
            - smallest return).
        normalize_states (default False): Normalize observations with the dataset's mean and
            standard deviation.
        sampling (default 'replacement'): Draw dataset rows independently, or every row once per
            epoch.
        num_epochs (default None): Training budget in passes over the training rows.
        validation_fraction (default None): Share of rows to hold out, in whole episodes; None
            means 0.05 without env_id, else 0.
        action_range (default 'environment'): Actions the policy chooses from: all of the
            environment's, or the range of the data's.
        action_low (default None): Lower action bounds of the data; only needed if env_id is
            None.
        action_high (default None): Upper action bounds of the data; only needed if env_id is
            None.

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
        env: EnvLike | None = None,
        *,
        env_id: str | None = None,
        eval_env: EnvLike | None = None,
        dataset: DatasetLike | None = None,
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
        return_bound: float | None = None,
        exploration_hold: int = 1,
        offline_batch_ratio: float = 0.5,
        offline_pretrain_updates: int = 0,
        random_play: bool = True,
        networks: dict[str, Any] = {},
        augmentation: Literal["none", "random_shift"] = "none",
        augmentation_pad: int = 4,
        num_critics: int = 10,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        entropy_fraction: float = 0.5,
        subset_size: int = 2,
        backup_entropy: bool = True,
        layer_norm: bool = True,
        seed: int = 0,
        seeds: int | Sequence[int] | None = None,
        output_dir: str | PathLike[str] = "runs",
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 10,
        checkpoint_interval: int = 10000,
        log_interval: int = 1000,
        tags: Sequence[str] = (),
        logging: dict[str, Any] = {},
        env_kwargs: dict[str, Any] = {},
        dataset_kind: Literal["random", "npz", "pt", "hdf5", "npy", "minari", "starter", "memory"]
        | None = None,
        dataset_path: str | PathLike[str] | None = None,
        dataset_id: str | None = None,
        dataset_download: bool = False,
        dataset_memory: Literal["auto", "load", "map"] = "auto",
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
        action_range: Literal["environment", "data"] | Sequence[Sequence[float]] = "environment",
        action_low: float | Sequence[float] | None = None,
        action_high: float | Sequence[float] | None = None,
        eval_interval: int = 5000,
        early_stopping: dict[str, Any] | None = None,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant",
        learning_rate_warmup: int = 0,
        learning_rate_final: float = 0.0,
        schedule_horizon: int | None = None,
        keep_checkpoints: int = 3,
        num_threads: int | None = None,
        engine: Literal["auto", "eager", "compiled", "cuda_graph"] = "auto",
        matmul_precision: Literal["highest", "high"] = "high",
    ) -> None: ...

def train_rlpd(
    config: TrainConfig | dict[str, Any] | str | Path,
    *,
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    dataset: DatasetLike | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> TrainResult:
    """Train RLPD from a config with `algo: rlpd`."""
