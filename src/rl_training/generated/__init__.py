"""Files that `make generate` writes (tools/generate.py)."""
