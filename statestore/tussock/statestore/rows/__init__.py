"""Data in motion: batches of encoded keys and Arrow columns, and values of Python in a column's type."""
