"""Options that all nodes have, and where the options of a node come from."""
