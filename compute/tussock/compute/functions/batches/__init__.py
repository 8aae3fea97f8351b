"""Functions of many requests at a time, over Arrow columns."""
