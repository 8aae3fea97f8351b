"""What the pods of a `Compute` say of themselves."""
