"""The first rows of groups."""
