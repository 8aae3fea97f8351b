"""The changes of a version, each with its checks beside its data."""
