"""Reads of tables by tasks, and the connections to stores that they use."""
