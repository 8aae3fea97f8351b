"""Flows behind a port: the calls of a `Flow` for the node that serves it, and the client that makes them."""
