"""Commands for flows of changelog streams that `tussock serve` runs."""
