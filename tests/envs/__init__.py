"""Environments: which may be made, and how."""
