"""Tests of the loggers."""
