"""Procedures behind a port: the calls of an `App` for the node that serves it, and the client that makes them."""
