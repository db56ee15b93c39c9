"""The command-line interface."""

from rl_training.cli.app import app, main

__all__ = ["app", "main"]
