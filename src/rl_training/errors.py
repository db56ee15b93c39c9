"""The errors of this package: each message is one sentence that says what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from rl_training.text import one_line


class RLTrainingError(Exception):
    """Base of all errors that this package raises on purpose.

    A message is one printable line of bounded length, whatever a file or a user put into it.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class ConfigError(RLTrainingError, ValueError):
    """Bad input: a key, a value, a space, a file that is not there."""

    exit_code = 2


class CheckpointError(RLTrainingError):
    """A checkpoint that is damaged, incomplete, hostile or from another format."""


class TrainingError(RLTrainingError):
    """Training cannot continue: a value is not finite, or a write failed."""


class EnvError(TrainingError):
    """An environment failed, returned an invalid value, or lost its process."""


_COMMON = (
    *("env_id", "total_timesteps", "seed", "learning_rate", "batch_size", "gamma", "hidden_sizes"),
    *("learning_starts", "num_envs", "eval_interval"),
)
"""The keys that are set most often, first in a list that is too long to show."""

_ELSEWHERE = {
    **{"env": "env_id", "env_name": "env_id", "n_envs": "num_envs", "ent_coef": "alpha"},
    **{"lr": "learning_rate", "discount": "gamma", "n_critics": "num_critics"},
    **{"buffer_size": "buffer_capacity", "net_arch": "hidden_sizes", "n_steps": "n_step"},
    **{"policy_kwargs": "hidden_sizes", "gradient_steps": "gradient_updates_per_step"},
    **{"tensorboard_log": "tensorboard", "n_epochs": "num_epochs"},
}
"""What other libraries call a key."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelled name, to be appended to a sentence."""
    options = sorted(known)
    close = get_close_matches(word, options, n=1, cutoff=0.6)
    if _ELSEWHERE.get(word) in options:
        close = [_ELSEWHERE[word]]
    if close:
        return f"; did you mean {close[0]!r}?"
    near = get_close_matches(word, options, n=4, cutoff=0.4)
    common = [name for name in _COMMON if name in options]
    ordered = list(dict.fromkeys([*near, *common, *options]))
    shown = ", ".join(ordered[:12]) + (", …" if len(ordered) > 12 else "")
    return f"; valid names: {shown}" if options else ""
