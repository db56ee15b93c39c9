"""Tests of populations."""
