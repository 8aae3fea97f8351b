"""Several processes that share the entities of a program, and run its functions where the entities are."""
