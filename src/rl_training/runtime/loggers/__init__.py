"""Destinations of metrics in addition to ``metrics.jsonl``: TensorBoard, CSV, W&B and MLflow."""
