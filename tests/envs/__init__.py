"""Environments: which may be made and how, and what odd ones do."""
