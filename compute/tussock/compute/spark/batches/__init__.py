"""Micro-batches: whose one is, its commit, what it cost, and who listens."""
