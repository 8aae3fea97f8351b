"""Applications behind a port: what `tussock serve` runs, and what its clients speak. The layers bring their calls."""
