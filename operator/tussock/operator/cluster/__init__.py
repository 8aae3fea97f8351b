"""The Kubernetes API: observes children and carries out actions."""
