"""Joins of streams with tables, and with each other."""
