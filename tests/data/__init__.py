"""Tests of `rl_training.data`."""
