"""The workers of a program: processes that it starts, or workers that join over a network."""
