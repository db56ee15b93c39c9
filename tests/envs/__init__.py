"""Tests of `rl_training.envs`."""
