"""Resources for tests of the operator: stores, metas and compactors as bodies of the API, parsed."""

from typing import Any

from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources import Compactor, Meta, StoreResource, parse_compactor, parse_meta, parse_store

__all__ = ["DEFAULTS", "compactor_with", "meta_with", "store_with"]

DEFAULTS = Defaults(
    node_image="registry.example/tussock-node:1.2.3",
    spark_image="registry.example/tussock-spark:1.2.3",
    minio_image="registry.example/minio:2026.1",
    namespace="tussock-system",
)


def _body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "data", "uid": f"uid-of-{kind.lower()}-{name}", "generation": 1}
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def store_with(object_store: dict[str, Any], name: str = "shop", **spec: Any) -> StoreResource:
    """A `StateStore` in the namespace `data`."""
    return parse_store(_body("StateStore", name, {"objectStore": object_store, **spec}))


def meta_with(name: str = "shop", **spec: Any) -> Meta:
    """A `Meta` of the store of its name."""
    return parse_meta(_body("Meta", name, {"storeRef": {"name": name}, **spec}))


def compactor_with(name: str = "shop", **spec: Any) -> Compactor:
    """A `Compactor` of the store of its name."""
    return parse_compactor(_body("Compactor", name, {"storeRef": {"name": name}, **spec}))
