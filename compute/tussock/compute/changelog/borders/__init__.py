"""Where a flow meets the world beside its clients: feeds that bring transactions, outputs that take them away."""
