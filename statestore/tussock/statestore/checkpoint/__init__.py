"""A worker's part in a coordinated checkpoint."""
