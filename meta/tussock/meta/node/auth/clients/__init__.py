"""Declared clients: each with a name, a role, and limits, by a file that is read again while the service runs."""
