"""compactor."""
