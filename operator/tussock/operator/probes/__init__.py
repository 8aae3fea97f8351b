"""Probes for what the API server cannot know: whether a bucket is writable, whether a platform serves."""
