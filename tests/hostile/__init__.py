"""Hostile input for every command: how the command must respond, and what it must never do."""
