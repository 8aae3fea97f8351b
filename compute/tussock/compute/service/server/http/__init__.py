"""The HTTP port of a node: its page, what the page asks for, metrics, and the probes of the process."""
