"""Tests of the trust boundary."""
