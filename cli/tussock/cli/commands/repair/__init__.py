"""The commands of `tussock repair`."""
