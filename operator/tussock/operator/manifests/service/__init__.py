"""The manifests of a `Compute` that is a service."""
