"""Manifests of children, as pure functions of a resource."""
