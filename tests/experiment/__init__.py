"""Tests of `rl_training.experiment`."""
