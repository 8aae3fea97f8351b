"""The plan of a `Compute` that is a service: its node, one at a time, and the workers that join it."""
