"""Where batches come in by themselves, and where tuples go: feeds and outputs of an application of procedures."""
