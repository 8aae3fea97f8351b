"""Keys: columns as bytes of the same order, their parts and ranges, and the virtual nodes that they begin with."""
