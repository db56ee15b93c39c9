"""Experiments: the config, the run folders, and putting a session together."""
