"""Studies: planning, the index, executors, faults."""
