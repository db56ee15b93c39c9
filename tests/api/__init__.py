"""Tests of `rl_training.api`."""
