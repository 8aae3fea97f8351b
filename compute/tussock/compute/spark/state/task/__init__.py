"""One task of a stateful function."""
