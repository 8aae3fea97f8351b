"""Bytes at rest: blocks, columns in them, the meta of an SST, bloom filters and hashes."""
