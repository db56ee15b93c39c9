"""Programs that measure speed, memory and learning; results in benchmarks/results."""
