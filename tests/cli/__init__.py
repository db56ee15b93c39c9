"""Tests of `rl_training.cli`."""
