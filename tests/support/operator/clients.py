"""Declared clients of the store `shop` in the namespace `data`, and of its meta nodes, for tests."""

from typing import Any

from tussock.operator.resources.client import StateStoreClient, parse_client

__all__ = ["client_body", "client_with"]


def client_body(name: str = "dashboard", store: str = "shop", **spec: Any) -> dict[str, Any]:
    """A `StateStoreClient`, a reader by default; `metadata` may be given in the spec."""
    about = {
        "name": name,
        "namespace": "data",
        "uid": f"client-{name}",
        "generation": 1,
        "creationTimestamp": "2026-11-21T00:00:00Z",
    }
    metadata = spec.pop("metadata", {})
    return {
        "apiVersion": "tussock.dev/v1alpha1",
        "kind": "StateStoreClient",
        "metadata": {**about, **metadata},
        "spec": {"storeRef": {"name": store}, "role": "reader", **spec},
    }


def client_with(name: str = "dashboard", **spec: Any) -> StateStoreClient:
    """The same, parsed."""
    return parse_client(client_body(name, **spec))
