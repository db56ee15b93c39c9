"""Experiments: configs, run folders, and building a session."""
