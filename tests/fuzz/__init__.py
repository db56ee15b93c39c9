"""Mutated input for every parser: `make fuzz`."""
