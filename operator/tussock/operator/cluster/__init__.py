"""The Kubernetes API: children observed, actions carried out."""
