"""Applications that are partitioned by key: what they may have, and how a batch is divided."""
