"""Tests of `rl_training.runtime`."""
