"""What lets clients in that are outside of the cluster."""
