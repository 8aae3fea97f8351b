"""Transactions: reads at one snapshot with own writes on top, and an atomic commit that finds conflicts by key."""
