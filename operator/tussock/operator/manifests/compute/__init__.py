"""The manifests of a `Compute`."""
