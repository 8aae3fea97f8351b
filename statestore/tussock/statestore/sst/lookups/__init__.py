"""Looking up keys: one key in a run, and lists of keys in many."""
