"""Tests of `rl_training.algorithms`."""
