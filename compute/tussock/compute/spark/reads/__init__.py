"""Reads of tables by tasks, and the stores that they are made through."""
