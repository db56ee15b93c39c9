"""Importing this module registers the synthetic task, as workers do."""

from tests.tuning.synthetic import register

register()
