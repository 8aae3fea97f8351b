"""The meta room: which SSTs a store consists of at each version, kept as a log in the bucket, and the service over it.

Floors, from below: `version` (the state and its changes, pure) and `checkpoints`, `log` (where versions are kept) and
`rpc`, `compaction` and `retention`, then `meta_store` for embedded stores and `client` for those of a service, and on
top `server`, the service itself.
"""
