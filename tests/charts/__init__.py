"""The chart, rendered and in an API server; in one package, so that this ends with the last test of them."""
