"""Hostile input to every command: what it must lead to, and what it must never do."""
