"""What they are turned into: manifests of children, as pure functions of a resource."""
