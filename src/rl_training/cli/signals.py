"""Exit codes of commands that a signal has ended."""

SIGNAL_EXITS = {"SIGINT": 130, "SIGTERM": 143}
