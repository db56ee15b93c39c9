"""Exceptions of this package, and suggestions for misspelled names.

Each message is one or two sentences: what is wrong, what is allowed and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from rl_training.text import one_line


class RLTrainingError(Exception):
    """Base of all errors that this package raises on purpose.

    A message is one printable line of bounded length, regardless of the input it quotes.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class ConfigError(RLTrainingError, ValueError):
    """Invalid input: an unknown key, a bad value, an unsupported space, a missing file."""

    exit_code = 2


class CheckpointError(RLTrainingError):
    """A checkpoint that is damaged, incomplete, hostile or in an unknown format."""


class TrainingError(RLTrainingError):
    """Training cannot continue: a value is not finite, or a write failed."""


class EnvError(TrainingError):
    """An environment failed, returned an invalid value, or lost its process."""


_COMMON = (
    *("env_id", "total_timesteps", "seed", "learning_rate", "batch_size", "gamma", "hidden_sizes"),
    *("learning_starts", "num_envs", "eval_interval"),
)
"""The most common keys, listed first if there are too many to show."""

_OTHER_NAMES = {
    "alpha": ("ent_coef", "entropy_coef", "entropy_coefficient", "temperature"),
    "buffer_capacity": ("buffer_size", "replay_size", "replay_buffer_size", "memory_size"),
    "checkpoint_interval": ("save_freq", "save_interval"),
    "dataset_path": ("dataset", "dataset_file"),
    "env_id": ("env", "env_name", "environment", "task"),
    "eval_episodes": ("n_eval_episodes", "num_eval_episodes"),
    "eval_interval": ("eval_freq", "eval_frequency", "evaluation_interval"),
    "gamma": ("discount", "discount_factor"),
    "gradient_updates_per_step": ("gradient_steps", "utd", "utd_ratio", "replay_ratio"),
    "hidden_sizes": ("net_arch", "policy_kwargs", "hidden_dim", "hidden_dims", "layers"),
    "learning_rate": ("lr",),
    "learning_starts": ("start_steps", "start_timesteps", "random_steps", "warmup_steps"),
    "n_step": ("n_steps", "nstep"),
    "num_critics": ("n_critics", "critics", "num_qs", "ensemble_size"),
    "num_envs": ("n_envs", "num_environments"),
    "num_epochs": ("n_epochs", "epochs"),
    "num_quantiles": ("n_quantiles",),
    "output_dir": ("log_dir", "logdir", "save_dir", "results_dir"),
    "policy_delay": ("policy_freq", "policy_frequency", "actor_update_frequency"),
    "tau": ("polyak", "target_smoothing"),
    "total_timesteps": ("steps", "num_steps", "max_steps", "total_steps", "max_timesteps"),
    "train_frequency": ("train_freq", "update_every"),
}
"""Names that other libraries use for the keys of this package."""

_ALIASES = {other: ours for ours, others in _OTHER_NAMES.items() for other in others}

_NESTED = {
    **{key: "networks.all.activation" for key in ("activation", "activation_fn")},
    **{key: f"networks.all.{key}" for key in ("dropout", "layer_norm")},
    "weight_decay": "optimizers.all.weight_decay",
    **{key: "optimizers.all.max_norm" for key in ("max_grad_norm", "grad_clip", "grad_norm")},
    **{key: "optimizers.actor.learning_rate" for key in ("actor_lr", "policy_lr")},
    **{key: "optimizers.critic.learning_rate" for key in ("critic_lr", "q_lr", "qf_lr")},
    **{key: f"env_kwargs.{key}" for key in ("max_episode_steps", "render_mode", "vectorization")},
    **{key: "logging.tensorboard" for key in ("tensorboard_log", "use_tensorboard")},
    **{key: f"logging.{key}" for key in ("csv", "mlflow", "videos", "wandb")},
    "patience": "early_stopping.patience",
    "min_delta": "early_stopping.min_delta",
}
"""Paths of nested keys, by the name that users may write at the top level."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, to be appended to a sentence."""
    options = sorted(known)
    hint = suggest_key(word, options)
    if hint:
        return hint
    close = close_match(word, options)
    if close is not None:
        return f"; did you mean {close!r}?"
    near = get_close_matches(word, options, n=4, cutoff=0.4)
    common = [name for name in _COMMON if name in options]
    ordered = list(dict.fromkeys([*near, *common, *options]))
    listed = ", ".join(ordered[:12]) + (", …" if len(ordered) > 12 else "")
    return f"; valid names: {listed}" if options else ""


def suggest_key(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for a nested key or for another library's name of a key, or ''."""
    options = set(known)
    if _ALIASES.get(word) in options:
        return f"; did you mean {_ALIASES[word]!r}?"
    nested = _NESTED.get(word, "")
    outer, *inner = nested.split(".")
    if outer not in options:
        return ""
    if {"actor", "critic"} & {*inner} and "num_critics" not in options:  # not an actor-critic
        return "; did you mean 'learning_rate'?"
    layout = "".join(f"{{{key}: " for key in inner) + "…" + "}" * len(inner)
    return f"; write {outer}: {layout}, or {nested}=… on the command line."


def close_match(word: str, options: Iterable[str]) -> str | None:
    """Return the option that a misspelled word probably means, or None.

    In a word of at most four letters, a single swap already changes half of it.
    """
    close = get_close_matches(word, options, n=1, cutoff=0.6 if len(word) <= 4 else 0.75)
    return close[0] if close else None
