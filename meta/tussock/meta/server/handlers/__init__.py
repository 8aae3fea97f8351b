"""The RPCs of the leader, one module for each group."""
