"""Runs of earlier versions."""
