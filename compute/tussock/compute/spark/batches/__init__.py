"""Micro-batches: identity, commit, cost, and listeners."""
