"""The passes: why and when the operator looks at a resource, and one pass over it."""
