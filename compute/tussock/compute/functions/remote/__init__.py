"""Functions behind a port: the calls of a `Runtime` for the node that serves it, and the client that makes them."""
