"""The operator: runs the platform from custom resources on Kubernetes."""
