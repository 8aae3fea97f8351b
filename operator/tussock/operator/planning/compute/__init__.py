"""The plan of a `Compute`: its drivers, one after the other, and everything that its job needs."""
