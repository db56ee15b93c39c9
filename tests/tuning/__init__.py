"""Tunings: spaces, proposals, outcomes, storages, faults."""
