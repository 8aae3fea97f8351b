"""The plan of a `Compute`: its driver, from the first to the last, and all that its job needs."""
