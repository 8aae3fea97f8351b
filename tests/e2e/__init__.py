"""Tests on a node of Kubernetes; in one package, so that the node ends with the last of them."""
