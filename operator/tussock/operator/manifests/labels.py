"""Names, labels and owner references of children: how the operator finds what belongs together.

Selectors of Deployments can never change, so `selector` has only what identifies the owner and the component. A pod
template carries no version: a label that changes with the operator would restart every pod at its upgrade.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from tussock.operator.resources.common import API_VERSION, Resource, StoreUser

__all__ = [
    "COMPONENT_LABEL",
    "CONFIG_HASH",
    "FAR_STORE_LABEL",
    "FAR_STORE_NAMESPACE_LABEL",
    "MANAGED_BY",
    "MANAGED_BY_LABEL",
    "OWNER_KIND_LABEL",
    "OWNER_LABEL",
    "RESTARTED_AT",
    "SPEC_ANNOTATION",
    "STORE_GENERATION",
    "STORE_LABEL",
    "Component",
    "Manifest",
    "digest",
    "far_labels",
    "generations",
    "labels",
    "metadata",
    "owner_reference",
    "revision",
    "secret_data",
    "selector",
]

Manifest: TypeAlias = dict[str, Any]
"""An object of the API as JSON."""
Component = Literal["meta", "compactor", "compute", "minio", "restore", "backup", "store", "client"]

MANAGED_BY = "tussock-operator"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
COMPONENT_LABEL = "app.kubernetes.io/component"
STORE_LABEL = "tussock.dev/store"
"""Names a store of the object's own namespace."""
FAR_STORE_LABEL = "tussock.dev/far-store"
"""In its place, with the label of the namespace, if the store is in another one. A namespace may have a store of the
same name, with selectors and network policies that nothing of another store may fit."""
FAR_STORE_NAMESPACE_LABEL = "tussock.dev/far-store-namespace"
OWNER_LABEL = "tussock.dev/owner"
OWNER_KIND_LABEL = "tussock.dev/owner-kind"
SPEC_ANNOTATION = "tussock.dev/spec"
"""On a workload, or on what is applied with it: the generations of the resources from which it was made, and what else
users change, so that a change by an upgrade can be told from theirs (`planning/turns.py`)."""
STORE_GENERATION = "tussock.dev/store-generation"
"""On a `Meta` or a `Compactor` that a store's spec asks for: the generation of the store that it was applied for."""
CONFIG_HASH = "tussock.dev/config-hash"
"""Annotation of a pod template: another configuration makes other pods."""
RESTARTED_AT = "tussock.dev/restarted-at"
"""On a `Meta`, a `Compactor` or a `Compute`: another text makes other pods, which have it, too. `kubectl tussock
restart` writes the time."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def selector(owner: Resource, component: Component) -> dict[str, str]:
    """The labels that select the pods of a child; they never change."""
    return {
        "app.kubernetes.io/name": "tussock",
        COMPONENT_LABEL: component,
        OWNER_KIND_LABEL: owner.kind,
        OWNER_LABEL: owner.name,
    }


def labels(owner: Resource, store: str, component: Component) -> dict[str, str]:
    """The labels of a child, and of its pods. `store` is the name of the `StateStore`."""
    ours = {MANAGED_BY_LABEL: MANAGED_BY, "app.kubernetes.io/part-of": "tussock"}
    if isinstance(owner, StoreUser) and owner.is_far:
        return {**selector(owner, component), **ours, **far_labels(owner.store_namespace, store)}
    return {**selector(owner, component), "app.kubernetes.io/instance": store, **ours, STORE_LABEL: store}


def far_labels(namespace: str, store: str) -> dict[str, str]:
    """The labels by which what belongs to a store of another namespace is found there."""
    return {FAR_STORE_LABEL: store, FAR_STORE_NAMESPACE_LABEL: namespace}


def owner_reference(owner: Resource) -> dict[str, Any]:
    """Makes the garbage collector delete a child with its owner, and the owner's deletion wait for it."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(
    owner: Resource, name: str, store: str, component: Component, *, image: str = "", owned: bool = True
) -> dict[str, Any]:
    """The metadata of a child. `image` gives the version if a child has one; without `owned`, it outlives its owner."""
    found = labels(owner, store, component)
    if version := _version(image):
        found["app.kubernetes.io/version"] = version
    meta: dict[str, Any] = {"name": name, "namespace": owner.namespace, "labels": found}
    if owned:
        meta["ownerReferences"] = [owner_reference(owner)]
    return meta


def generations(store: Resource, component: Resource) -> str:
    """The generations of a store and of one of its components, for `SPEC_ANNOTATION`.

    That of the store is the one for which the component was applied. A component sees a new spec of the store before it
    gets what that says of itself; pods made from it in between would be made anew right afterwards.
    """
    of_store = component.metadata.annotations.get(STORE_GENERATION, str(store.metadata.generation))
    return f"{of_store}.{revision(component)}"


def revision(resource: Resource) -> str:
    """The generation of a resource, and a digest of the restart that its users have asked for, if they have.

    An annotation makes no new generation, and yet a restart is a change of users: it waits for no upgrade's turn.
    """
    asked = resource.metadata.annotations.get(RESTARTED_AT)
    return f"{resource.metadata.generation}" if asked is None else f"{resource.metadata.generation}r{digest(asked)}"


def secret_data(texts: Mapping[str, str]) -> dict[str, str]:
    """Texts as the `data` of a Secret: the API server keeps this field, so it can be compared."""
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def digest(*parts: str | bytes | Mapping[str, str]) -> str:
    """16 hexadecimal digits that change with any of `parts`: they show a change without revealing the content."""
    found = hashlib.sha256()
    for part in parts:
        texts = [piece for pair in sorted(part.items()) for piece in pair] if isinstance(part, Mapping) else [part]
        for text in texts:
            data = text.encode() if isinstance(text, str) else text
            # With its length in front, so that two parts never read as one.
            found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:16]


def _version(image: str) -> str:
    """The tag of an image if it is a valid label; a digest may not be one, and a registry's port is not a tag."""
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag if _LABEL_VALUE.fullmatch(tag) else ""
