"""Operators over groups of rows: aggregates and distinct combinations."""
