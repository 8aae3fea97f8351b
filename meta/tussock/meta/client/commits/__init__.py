"""Commits of a client: alone, or those of several threads in one message."""
