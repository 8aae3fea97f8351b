"""Writes: tasks turn rows into SSTs, and one commit on the driver makes them visible."""
