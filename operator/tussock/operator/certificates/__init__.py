"""The certificates that the operator issues. Keys are drawn only here; nothing here uses the network."""
