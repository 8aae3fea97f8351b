"""The node that `tussock serve` runs."""
