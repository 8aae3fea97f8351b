"""What to merge next, who merges it, and when writers have to wait for it."""
