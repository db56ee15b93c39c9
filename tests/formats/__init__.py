"""Tests with runs recorded by earlier versions."""
