"""The commands of `tussock`, a module for each group."""
