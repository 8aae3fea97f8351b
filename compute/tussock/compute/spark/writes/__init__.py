"""Writes: rows become SSTs in the tasks, and one commit on the driver makes them visible."""
