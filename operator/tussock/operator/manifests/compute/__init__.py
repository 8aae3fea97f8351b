"""What a `Compute` is turned into."""
