"""Runs of earlier versions are read by this one."""
