"""The arguments of the API's functions: what is taken, and the sentence for what is not."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.errors import ConfigError
from rl_training.runtime.callbacks import Callback


def check_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks as a list, or an error that says what to write in place of what was given."""
    if isinstance(callbacks, Callback):
        name = type(callbacks).__name__
        raise ConfigError(
            f"callbacks is a single {name}: put it into a list, callbacks=[{name}()]."
        )
    if not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"callbacks = {callbacks!r}: should be a list of Callback objects; leave it out for "
            "none."
        )
    for index, callback in enumerate(callbacks):
        if isinstance(callback, type) and issubclass(callback, Callback):
            name = callback.__name__
            raise ConfigError(f"callbacks[{index}] is the class {name}: make one of it, {name}().")
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks[{index}] = {callback!r}: should be a Callback; derive a class from "
                "rl_training.Callback and put the code into its on_step (docs/callbacks.md)."
            )
    return list(callbacks)
