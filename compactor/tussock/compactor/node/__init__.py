"""A compactor node: a process of a platform that works on tasks of the meta service."""
