"""The RPCs of the meta service: `meta.proto`, and what server and client share about it."""
