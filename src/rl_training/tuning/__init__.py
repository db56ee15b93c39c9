"""Tuning: search for the settings with the best return."""
