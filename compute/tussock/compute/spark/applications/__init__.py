"""Applications of procedures that run inside the tasks of a streaming query."""
