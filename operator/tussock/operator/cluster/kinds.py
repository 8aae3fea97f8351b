"""The kinds of objects that the operator handles, and their paths in the API.

A closed table instead of discovery: the operator may only touch what its role names (`charts/tussock`), so a kind
that is missing here is missing there, too.
"""

from typing import NamedTuple

from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL
from tussock.operator.resources.common import API_VERSION

__all__ = ["CHILDREN", "FINALIZER", "KINDS", "OURS", "RESOURCES", "Kind", "Watched", "path_of", "selectors_of"]

OURS = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
"""Selects every child, and the pods that children make: watches ask the server only for those."""


FINALIZER = "tussock.dev/cleanup"
"""Keeps a deleted resource until the operator has cleaned up; `kubectl tussock release` removes it without operator."""


class Kind(NamedTuple):
    """One kind of object, with its names in the API."""

    api_version: str
    plural: str

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Such as `v1`."""
        return self.api_version.rpartition("/")[2]


RESOURCES: dict[str, Kind] = {
    "StateStore": Kind(API_VERSION, "statestores"),
    "Meta": Kind(API_VERSION, "metas"),
    "Compactor": Kind(API_VERSION, "compactors"),
    "Compute": Kind(API_VERSION, "computes"),
    "StateStoreBackup": Kind(API_VERSION, "statestorebackups"),
    "StateStoreClient": Kind(API_VERSION, "statestoreclients"),
}
"""Our custom resources, which users write."""

CHILDREN: dict[str, Kind] = {
    "ConfigMap": Kind("v1", "configmaps"),
    "Deployment": Kind("apps/v1", "deployments"),
    "Ingress": Kind("networking.k8s.io/v1", "ingresses"),
    "NetworkPolicy": Kind("networking.k8s.io/v1", "networkpolicies"),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "Pod": Kind("v1", "pods"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "Role": Kind("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Kind("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Service": Kind("v1", "services"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "StatefulSet": Kind("apps/v1", "statefulsets"),
}
"""What the operator makes and watches by its label. It watches all secrets, too, since users name their own."""

KINDS: dict[str, Kind] = {
    **RESOURCES,
    **CHILDREN,
    "Certificate": Kind("cert-manager.io/v1", "certificates"),
    "Event": Kind("events.k8s.io/v1", "events"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "Namespace": Kind("v1", "namespaces"),
    "Secret": Kind("v1", "secrets"),
}


class Watched(NamedTuple):
    """The objects of a kind that the operator sees, as the server's own selectors; empty for all of them."""

    labels: str = ""
    fields: str = ""


def selectors_of(kind: str) -> Watched:
    """The selectors of a kind for watches and sweeps: the same, or a sweep would find objects that no watch reports.

    Users name their secrets, so labels do not tell these apart. But Helm's releases, each up to a megabyte and many in
    a cluster, are never secrets of a store.
    """
    if kind == "Secret":
        return Watched(fields="type!=helm.sh/release.v1")
    return Watched(labels=OURS) if kind in CHILDREN or kind == "Certificate" else Watched()


def path_of(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """The path of an object, or of all of a kind (empty `name`), in one namespace or in all (`None`)."""
    api_version, plural = KINDS[kind]
    parts = ["apis" if "/" in api_version else "api", api_version]
    parts += ["namespaces", namespace] if namespace is not None else []
    parts += [part for part in (plural, name, subresource) if part]
    return "/" + "/".join(parts)
