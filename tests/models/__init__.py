"""Tests of `rl_training.models`."""
