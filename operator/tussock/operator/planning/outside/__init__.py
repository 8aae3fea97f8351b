"""Which nodes are reached from outside, and where."""
