"""What users may set, and where it comes from."""
