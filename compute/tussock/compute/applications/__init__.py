"""What the layers that compute on the store share: input log, clocks, delta, progress, replies, recovery."""
