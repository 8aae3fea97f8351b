"""What all kinds share: the parsing of a body into a typed resource, and the fields that several specs have.

The API server has checked a body by the schema and the rules in `crds/` before the operator reads it, so these types
only say what the fields mean to the code. A body that does not fit was stored under another schema; it is refused with
the path of the field, and the resource's status says so. Fields are named as in YAML, in snake case:
`retentionSeconds` is `retention_seconds`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "CamelStruct",
    "ForeignStoreRef",
    "InvalidResource",
    "ObjectMeta",
    "PodTemplate",
    "Resource",
    "ResourceRequirements",
    "StoreRef",
    "StoreUser",
    "StoreUserSpec",
    "near_store",
    "parse",
    "store_place",
]

GROUP = "tussock.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

PodTemplate = dict[str, Any]
"""A part of a Kubernetes `PodTemplateSpec`, merged over ours where ours does not insist.

`manifests/pod/strategic_merge.py` has the merge.
"""


class InvalidResource(Exception):
    """A body does not fit its kind: the message names the object, the field and what is wrong with it."""


class CamelStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a spec. Ignores unknown fields: the schema has refused those that mean nothing."""


class ObjectMeta(CamelStruct, frozen=True, kw_only=True):
    """The metadata that the operator uses."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    """Set while finalizers keep a deleted object."""
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Resource(CamelStruct, frozen=True, kw_only=True):
    """One custom resource; each kind adds its `spec`."""

    kind: ClassVar[str]
    """The API's name: `StateStore`."""

    metadata: ObjectMeta
    status: dict[str, Any] = {}
    """The last one written: conditions keep the time of their last transition there."""

    @property
    def name(self) -> str:
        """Unique among its kind and namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace, also that of all its children."""
        return self.metadata.namespace

    @property
    def is_being_deleted(self) -> bool:
        """Whether it was deleted, and a finalizer keeps it for cleaning up."""
        return bool(self.metadata.deletion_timestamp)


class StoreRef(CamelStruct, frozen=True, kw_only=True):
    """A `StateStore` of the same namespace."""

    name: str


class ForeignStoreRef(CamelStruct, frozen=True, kw_only=True):
    """A `StateStore`, perhaps of another namespace, which that has to allow."""

    name: str
    namespace: str = ""
    """Empty: that of the object."""


class StoreUserSpec(CamelStruct, frozen=True, kw_only=True):
    """The part of a spec that names the store."""

    store_ref: ForeignStoreRef


class StoreUser(Resource, frozen=True, kw_only=True):
    """A resource that may be in another namespace than its store."""

    spec: StoreUserSpec

    @property
    def store_namespace(self) -> str:
        """The namespace of its store."""
        return self.spec.store_ref.namespace or self.namespace

    @property
    def is_far(self) -> bool:
        """Whether its store is in another namespace."""
        return self.store_namespace != self.namespace


class ResourceRequirements(CamelStruct, frozen=True, kw_only=True):
    """A container's requests and limits; quantities as Kubernetes writes them."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


AnyResource = TypeVar("AnyResource", bound=Resource)


def parse(body: Mapping[str, Any], kind: type[AnyResource]) -> AnyResource:
    """A body of the API server as a resource of `kind`; `InvalidResource` if it does not fit."""
    try:
        # As a plain dict: of an object with attributes, such as kopf's bodies, msgspec would read the attributes.
        return msgspec.convert(dict(body), kind)
    except msgspec.ValidationError as error:
        about = body.get("metadata") or {}
        raise InvalidResource(
            f"{kind.kind} {about.get('namespace', '')}/{about.get('name', '')} does not fit the schema of this "
            f"operator: {error}; apply it again with that field corrected"
        ) from error


def store_place(body: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of the store that one of our resources belongs to; a `StateStore` belongs to itself."""
    metadata = body["metadata"]
    if body["kind"] == "StateStore":
        return metadata["namespace"], metadata["name"]
    reference = (body.get("spec") or {}).get("storeRef") or {}
    return str(reference.get("namespace") or metadata["namespace"]), str(reference.get("name", ""))


def near_store(body: Mapping[str, Any]) -> str:
    """The name of the store of its namespace that a resource belongs to; empty for one of another namespace."""
    namespace, name = store_place(body)
    return name if namespace == body["metadata"]["namespace"] else ""
